"""The models of a pack: each member's card and manifest, and one signed manifest over them."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from affidavit.libs.evidence.keys import public_pem
from affidavit.libs.models import ModelFolder, load_weights


@dataclass(frozen=True)
class ModelFiles:
    """Zip members by name, `model.manifest`, `model.sig` and `model.pub` among them."""

    files: dict[str, bytes]


def model_files(root: Path, reference: str, key: Ed25519PrivateKey) -> ModelFiles:
    """Sign the members of `bundle@version`, once their weights here are what their cards pin.

    Raises:
        AffidavitError: BUNDLE_NOT_FOUND, MODEL_UNVERIFIED.
    """
    bundle = ModelFolder(root).bundle(reference.partition("@")[0], reference)
    files: dict[str, bytes] = {}
    lines: list[str] = []
    for member in bundle.members.values():
        load_weights(member).close()
        folder = f"models/{member.card.model_id}/{member.card.version}"
        files[f"{folder}/model.yaml"] = (member.folder / "model.yaml").read_bytes()
        files[f"{folder}/model.manifest"] = member.manifest
        lines.append(f"{hashlib.sha256(member.manifest).hexdigest()}  {folder}/model.manifest\n")
    manifest = "".join(sorted(lines, key=lambda line: line[66:])).encode()
    files |= {"model.manifest": manifest, "model.sig": key.sign(manifest), "model.pub": public_pem(key.public_key())}
    return ModelFiles(files)

"""The models of a pack: each member's card and manifest, and the signed manifest over them, as of their first use."""

from collections.abc import Callable, Set
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from affidavit.libs.models import ModelFolder, load_weights
from affidavit.libs.models.signed import CARD, MANIFEST, PUBLIC, SIGNATURE, SignedBundle, SignedModels


@dataclass(frozen=True)
class ModelFiles:
    """Zip members by name, `model.manifest`, `model.sig` and `model.pub` among them."""

    files: dict[str, bytes]


def model_files(
    root: Path, kept: SignedModels, reference: str, used: Set[bytes], key: Callable[[], Ed25519PrivateKey]
) -> ModelFiles:
    """The members of `bundle@version` as they were signed when it was first used; else signed now, once their weights in
    `root` are what their cards pin.

    Args:
        used: hashes of models that it must have.

    Raises:
        AffidavitError: BUNDLE_NOT_FOUND, MODEL_UNVERIFIED, HASH_MISMATCH. OSError.
    """
    signed = kept.find(reference, used) or _sign(root, kept, reference, key)
    files = {name: signed.files[name] for name in (MANIFEST, SIGNATURE, PUBLIC)}
    for name, model_hash in signed.models.items():
        model = kept.model(model_hash)
        files |= {name: model[MANIFEST], name.replace(MANIFEST, CARD): model[CARD]}
    return ModelFiles(files)


def _sign(root: Path, kept: SignedModels, reference: str, key: Callable[[], Ed25519PrivateKey]) -> SignedBundle:
    bundle = ModelFolder(root).bundle(reference.partition("@")[0], reference)
    for member in bundle.members.values():
        load_weights(member).close()
    return kept.keep(bundle, key)

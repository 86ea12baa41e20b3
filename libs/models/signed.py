"""Models as they were signed at their first use, kept by content: what a pack of any time is made from.

    kept = SignedModels(data.models)
    signed = kept.keep(bundle, lambda: model_key(data.keys))     # when it is first used; the same bytes ever after
    signed = kept.find("document@20261203.1", used)             # also when it is not installed any more

`manifests/<model_hash>/` holds a model's card and manifest, `bundles/<name>@<version>/<SHA-256 of its model.manifest>/` the
bundle's card and the list of its models' manifests; each with `model.sig` over `model.manifest` (64 bytes, RFC 8032) and
the key of that time, `model.pub`. A folder is there whole or not at all, and is never written again.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.durablefile import create_file, make_folder, sync_folder
from affidavit.libs.evidence.keys import public_pem
from affidavit.libs.models.folder import Bundle

CARD, BUNDLE_CARD, MANIFEST, SIGNATURE, PUBLIC = "model.yaml", "bundle.yaml", "model.manifest", "model.sig", "model.pub"
_SUFFIX = f"/{MANIFEST}"


@dataclass(frozen=True)
class SignedBundle:
    """A bundle as it was signed.

    Attributes:
        folder: where its own files lie.
        files: contents of `model.manifest`, `model.sig`, `model.pub`, `bundle.yaml`.
        models: model_hash (32 bytes) by the name of the model's manifest, `models/<model_id>/<version>/model.manifest`.
    """

    folder: Path
    files: Mapping[str, bytes]
    models: Mapping[str, bytes]


class SignedModels:
    """The folder of them, `models` in the data folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def keep(self, bundle: Bundle, key: Callable[[], Ed25519PrivateKey]) -> SignedBundle:
        """Sign what is not signed yet of a bundle whose weights were verified; `key` is called only where something is.

        Raises:
            OSError: the disk refuses. What `key` raises.
        """
        lines = [
            f"{m.model_hash.hex()}  {_name_of(m.card.model_id, m.card.version)}\n" for m in bundle.members.values()
        ]
        listing = "".join(sorted(lines, key=lambda line: line[66:])).encode()
        for member in bundle.members.values():
            card = (member.folder / CARD).read_bytes()
            self._write(self.folder_of(member.model_hash), {CARD: card, MANIFEST: member.manifest}, key)
        folder = self._bundles(bundle.reference) / hashlib.sha256(listing).hexdigest()
        self._write(folder, {BUNDLE_CARD: bundle.file.read_bytes(), MANIFEST: listing}, key)
        return _read_bundle(folder)

    def find(self, reference: str, used: Set[bytes]) -> SignedBundle | None:
        """The bundle `name@version` that has all the models of these hashes; None where none was kept.

        Raises:
            AffidavitError: HASH_MISMATCH: its list is not the one that was kept. OSError.
        """
        fitting = (bundle for bundle in self.all_of(reference) if used <= set(bundle.models.values()))
        return next(fitting, None)

    def all_of(self, reference: str) -> list[SignedBundle]:
        """Every bundle that was kept under the name `name@version`: one, unless the card was changed. Raises as `find`."""
        folder = self._bundles(reference)
        paths = sorted(folder.iterdir()) if folder.is_dir() else []
        return [_read_bundle(path) for path in paths if len(path.name) == 64]  # others are left by a crash

    def folder_of(self, model_hash: bytes) -> Path:
        """Where a model's files lie, if they were kept."""
        return self._root / "manifests" / model_hash.hex()

    def model(self, model_hash: bytes) -> dict[str, bytes]:
        """`model.yaml`, `model.manifest`, `model.sig` and `model.pub` of a model.

        Raises:
            AffidavitError: HASH_MISMATCH: the manifest is not the one that was kept. OSError: FileNotFoundError where none was.
        """
        folder = self.folder_of(model_hash)
        return _checked(folder, {name: (folder / name).read_bytes() for name in (CARD, MANIFEST, SIGNATURE, PUBLIC)})

    def _bundles(self, reference: str) -> Path:
        return self._root / "bundles" / reference

    def _write(self, folder: Path, files: Mapping[str, bytes], key: Callable[[], Ed25519PrivateKey]) -> None:
        if folder.is_dir():
            return
        signer = key()
        make_folder(folder.parent, 0o700)
        building = Path(tempfile.mkdtemp(prefix="new-", dir=folder.parent))
        try:
            whole = {**files, SIGNATURE: signer.sign(files[MANIFEST]), PUBLIC: public_pem(signer.public_key())}
            for name, data in whole.items():
                create_file(building / name, data, 0o444)
            building.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was first, and its folder is as good
                raise
        finally:
            shutil.rmtree(building, ignore_errors=True)
        sync_folder(folder.parent)


def _name_of(model_id: str, version: str) -> str:
    return f"models/{model_id}/{version}{_SUFFIX}"


def _read_bundle(folder: Path) -> SignedBundle:
    files = {name: (folder / name).read_bytes() for name in (BUNDLE_CARD, MANIFEST, SIGNATURE, PUBLIC)}
    lines = _checked(folder, files)[MANIFEST].decode().splitlines()
    return SignedBundle(folder, files, {line[66:]: bytes.fromhex(line[:64]) for line in lines})


def _checked(folder: Path, files: dict[str, bytes]) -> dict[str, bytes]:
    if hashlib.sha256(files[MANIFEST]).hexdigest() != folder.name:
        message = f"{folder / MANIFEST} is not what was kept there: put it back from a backup or the archive"
        raise AffidavitError("HASH_MISMATCH", message)
    return files

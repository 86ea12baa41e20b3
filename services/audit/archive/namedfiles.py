"""The files that records name: kept as long as the records, by their content.

A record names its bundle, and each model by the hash of its manifest. With them goes every public key that is here: the
log's, with which checkpoints are verified, and the models', with which packs are.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.logkeys import CHECKPOINT_SUFFIX, retired_files
from affidavit.libs.models import Member, ModelFolder
from affidavit.libs.models.signed import SignedModels


@dataclass(frozen=True)
class Named:
    """Contents by name (`models/…`, `keys/…`), and what is named and not here."""

    files: Mapping[str, bytes]
    missing: tuple[str, ...]


class NamedFiles:
    """Cards and manifests in `models`, signatures beside them in `signed` (libs/models/signed.py), public keys in `keys`."""

    def __init__(self, models: Path, keys: Path, signed: Path) -> None:
        self._models = models
        self._keys = keys
        self._signed_root = signed
        self._signed = SignedModels(signed)

    def of(self, leaves: Iterable[bytes]) -> Named:
        """What the records of `leaves` name. Raises OSError: a file that is there cannot be read."""
        bundles: set[str] = set()
        models: dict[bytes, str] = {}
        for leaf in leaves:
            record: dict[str, Any] = json.loads(leaf)
            if record["bundle"]:
                bundles.add(record["bundle"])
            for step in record["steps"]:
                if step["model_hash"]:
                    models[bytes.fromhex(step["model_hash"])] = f"{step['model']} {step['version']}"
        files = {f"keys/{path.relative_to(self._keys)}": path.read_bytes() for path in self._public()}
        missing: list[str] = []
        named = tuple(models)
        for reference in sorted(bundles):
            missing += self._add_bundle(reference, models, files)
        for model_hash in named:
            if self._add_signed(model_hash, files):
                models.pop(model_hash, None)
        missing += [f"model {name}: no manifest with SHA-256 {digest.hex()}" for digest, name in models.items()]
        return Named(files, tuple(sorted(missing)))

    def _public(self) -> list[Path]:
        """Public keys, those that were rotated away too, and the checkpoints that hand over from one to the next."""
        retired = retired_files(self._keys)
        handovers = (path.with_suffix(CHECKPOINT_SUFFIX) for path in retired)
        return [*sorted(self._keys.glob("*.pub")), *retired, *(path for path in handovers if path.exists())]

    def _add_bundle(self, reference: str, models: dict[bytes, str], files: dict[str, bytes]) -> list[str]:
        """Add a bundle's files, and take its members out of `models`; what is not here."""
        signed = self._signed.all_of(reference)
        for bundle in signed:
            files |= {self._signed_name(bundle.folder / name): data for name, data in bundle.files.items()}
            for model_hash in bundle.models.values():
                self._add_signed(model_hash, files)
        try:
            bundle = ModelFolder(self._models).bundle(reference.partition("@")[0], reference)
        except AffidavitError as error:
            return [] if signed else [f"bundle {reference}: {error.message}"]
        files[self._name(bundle.file)] = bundle.file.read_bytes()
        for member in bundle.members.values():
            if models.pop(member.model_hash, None) is not None:
                files |= self._files_of(member)
        return []

    def _files_of(self, member: Member) -> dict[str, bytes]:
        card = member.folder / "model.yaml"
        return {self._name(card): card.read_bytes(), self._name(member.folder / "model.manifest"): member.manifest}

    def _add_signed(self, model_hash: bytes, files: dict[str, bytes]) -> bool:
        folder = self._signed.folder_of(model_hash)
        if not folder.is_dir():
            return False
        files |= {self._signed_name(folder / name): data for name, data in self._signed.model(model_hash).items()}
        return True

    def _signed_name(self, path: Path) -> str:
        return f"models/{path.relative_to(self._signed_root)}"

    def _name(self, path: Path) -> str:
        return f"models/{path.relative_to(self._models)}"


def sha256_of(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()

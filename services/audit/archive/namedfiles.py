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
from affidavit.libs.models import Member, ModelFolder


@dataclass(frozen=True)
class Named:
    """Contents by name (`models/…`, `keys/…`), and what is named and not here."""

    files: Mapping[str, bytes]
    missing: tuple[str, ...]


class NamedFiles:
    """Cards, manifests, signatures in `models`, public keys in `keys`."""

    def __init__(self, models: Path, keys: Path) -> None:
        self._models = models
        self._keys = keys

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
        files = {f"keys/{path.name}": path.read_bytes() for path in sorted(self._keys.glob("*.pub"))}
        missing: list[str] = []
        for reference in sorted(bundles):
            missing += self._add_bundle(reference, models, files)
        missing += [f"model {name}: no manifest with SHA-256 {digest.hex()}" for digest, name in models.items()]
        return Named(files, tuple(sorted(missing)))

    def _add_bundle(self, reference: str, models: dict[bytes, str], files: dict[str, bytes]) -> list[str]:
        """Add a bundle's files, and take its members out of `models`; what is not here."""
        try:
            bundle = ModelFolder(self._models).bundle(reference.partition("@")[0], reference)
        except AffidavitError as error:
            return [f"bundle {reference}: {error.message}"]
        files[self._name(bundle.file)] = bundle.file.read_bytes()
        for member in bundle.members.values():
            if models.pop(member.model_hash, None) is not None:
                files |= self._files_of(member)
        return []

    def _files_of(self, member: Member) -> dict[str, bytes]:
        card = member.folder / "model.yaml"
        found = {self._name(card): card.read_bytes(), self._name(member.folder / "model.manifest"): member.manifest}
        for name in ("model.sig", "model.pub"):
            path = member.folder / name
            if path.exists():
                found[self._name(path)] = path.read_bytes()
        return found

    def _name(self, path: Path) -> str:
        return f"models/{path.relative_to(self._models)}"


def sha256_of(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()

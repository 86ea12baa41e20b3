"""The models folder: cards by id and version, bundles by name and version, aliases."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import RootModel

from affidavit.libs.errors import AffidavitError
from affidavit.libs.models import cards
from affidavit.libs.models.cards import BundleCard, ModelCard
from affidavit.models.v1 import models_pb2

PROMOTED = "promoted"


@dataclass(frozen=True)
class Member:
    """One model of a bundle.

    Attributes:
        manifest: `sha256sum` format, sorted by name: the card and its files.
        model_hash: SHA-256 of the manifest, 32 bytes.
    """

    card: ModelCard
    folder: Path
    manifest: bytes
    model_hash: bytes


@dataclass(frozen=True)
class Bundle:
    """A pipeline card with its members found and their manifests made. Weights are not read here."""

    card: BundleCard
    file: Path
    bundle_hash: bytes
    members: Mapping[str, Member]

    @property
    def reference(self) -> str:
        """`document@20261203.1`"""
        return f"{self.card.bundle}@{self.card.version}"

    def rules(self, model: type[cards.Card]) -> cards.Card:
        """The pipeline's own rules, checked as strictly as the rest of the card."""
        return cards.parse(model, self.card.rules, f"{self.file}: rules")

    def message(self) -> models_pb2.Bundle:
        models = [
            models_pb2.Model(
                model_id=member.card.model_id,
                version=member.card.version,
                model_hash=member.model_hash,
                engine=self.card.engine,
                precision=self.card.precision,
            )
            for member in self.members.values()
        ]
        return models_pb2.Bundle(
            name=self.card.bundle, version=self.card.version, bundle_hash=self.bundle_hash, models=models
        )


class _Aliases(RootModel[dict[str, dict[str, cards.Version]]]):
    """`bundles/aliases.yaml`: bundle name to alias to version."""


def default_models_folder() -> Path:
    """`models/` of the repository that this code lies in."""
    return Path(__file__).resolve().parents[2] / "models"


class ModelFolder:
    """`models/<model_id>/<version>/model.yaml` and `models/bundles/<bundle>/<version>/bundle.yaml`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def bundle(self, name: str, selector: str = "") -> Bundle:
        """The bundle `name` in the version that the selector means.

        Args:
            selector: `name@version`, or an alias; empty means "promoted".

        Raises:
            AffidavitError: BUNDLE_NOT_FOUND listing what there is; MODEL_UNVERIFIED when a card is not as it must be.
        """
        version = self._version(name, selector or PROMOTED)
        file = self._root / "bundles" / name / version / "bundle.yaml"
        card, data = cards.read(BundleCard, file)
        if (card.bundle, card.version) != (name, version):
            raise AffidavitError("MODEL_UNVERIFIED", f"{file}: says {card.bundle}@{card.version}")
        members = {role: self._member(ref.model_id, ref.version) for role, ref in card.models.items()}
        return Bundle(card, file, hashlib.sha256(data).digest(), members)

    def versions(self, name: str) -> list[str]:
        return sorted(p.parent.name for p in (self._root / "bundles" / name).glob("*/bundle.yaml"))

    def _version(self, name: str, selector: str) -> str:
        file = self._root / "bundles" / "aliases.yaml"
        aliases = cards.read(_Aliases, file)[0].root.get(name, {}) if file.is_file() else {}
        versions = self.versions(name)
        bundle, at, version = selector.partition("@")
        if not at:
            version = aliases.get(selector, "")
        if version in versions and (not at or bundle == name):
            return version
        known = [f"{name}@{v}" for v in versions] + sorted(aliases)
        there = ", ".join(known) if versions else f"no bundle {name} in {self._root}; set models_folder"
        raise AffidavitError("BUNDLE_NOT_FOUND", f"no bundle {selector!r}; there is {there}", field="bundle")

    def _member(self, model_id: str, version: str) -> Member:
        folder = self._root / model_id / version
        file = folder / "model.yaml"
        card, data = cards.read(ModelCard, file)
        if (card.model_id, card.version) != (model_id, version):
            raise AffidavitError("MODEL_UNVERIFIED", f"{file}: says {card.model_id} {card.version}")
        manifest = _manifest(card, data)
        return Member(card, folder, manifest, hashlib.sha256(manifest).digest())


def _manifest(card: ModelCard, card_bytes: bytes) -> bytes:
    hashes: dict[str, str] = {"model.yaml": hashlib.sha256(card_bytes).hexdigest()}
    hashes |= {Path(weights.path).name: weights.sha256 for weights in card.files.values()}
    return "".join(f"{hashes[name]}  {name}\n" for name in sorted(hashes)).encode()


def describe(bundle: Bundle) -> dict[str, Any]:
    """What a log line says of a bundle."""
    return {
        "bundle": bundle.reference,
        "bundle_hash": bundle.bundle_hash.hex(),
        "models": {role: member.model_hash.hex() for role, member in bundle.members.items()},
    }

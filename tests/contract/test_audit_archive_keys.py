"""The archive of a log over the life of its keys: rotated ones still verify, and models stay as they were signed."""

import hashlib
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.keysource import KeySource
from affidavit.libs.evidence.logkeys import LogKeys
from affidavit.libs.evidence.segment import Manifest
from affidavit.libs.models import ModelFolder, default_models_folder
from affidavit.libs.models.signed import SignedModels
from affidavit.services.audit.archive.folder import FolderStore
from affidavit.services.audit.archive.places import log_verifiers
from affidavit.services.audit.archive.verify import ArchiveReport, list_archive, verify_archive
from affidavit.services.audit.offline import Here, silent
from affidavit.services.audit.opening import LogFolders
from affidavit.services.audit.repair import repair
from affidavit.services.audit.rotate import rotate
from tests.contract.archive_log import ArchivedLog


class RotatedLog(ArchivedLog):
    """Verified as the service does it: with the keys that lie in its folder."""

    @property
    def verifiers(self):
        return lambda origin: log_verifiers(self.home / "keys", origin)


def opened(folder: Path, models: Path | None = None) -> RotatedLog:
    return RotatedLog(folder / "home", FolderStore(folder / "archive"), models or default_models_folder())


def verify(archived: RotatedLog) -> ArchiveReport:
    return verify_archive(archived.objects, archived.verifiers, None, datetime.now(UTC), silent)


def archived_files(archived: RotatedLog, manifest: Manifest) -> dict[str, bytes]:
    """Contents by name of what a segment names."""
    found: dict[str, bytes] = {}
    for file in manifest.files:
        (copy,) = archived.objects.copies(file.key)
        found[file.name] = archived.objects.read(copy).data
        assert hashlib.sha256(found[file.name]).digest() == file.sha256
    return found


async def test_an_archive_from_before_and_after_a_rotation_verifies_and_repairs_the_log(tmp_path: Path) -> None:
    archived = opened(tmp_path)
    archived.append(0, 19)
    assert await archived.archive() == 20
    archived.close()
    assert verify(archived).findings == []
    folders = LogFolders.below(archived.home)
    assert rotate(folders, KeySource()).index == 20
    archived = opened(tmp_path)
    archived.append(21, 25)
    assert await archived.archive() == 6
    before = [archived.log.leaf(index) for index in range(26)]
    archived.close()
    report = verify(archived)
    assert (report.findings, report.records) == ([], 26)

    keys = archived.home / "keys"
    files = archived_files(archived, [listed.manifest for listed in list_archive(archived.objects)][-1])
    for name in ("log.pub", "retired/20.pub", "retired/20.checkpoint"):
        assert files[f"keys/{name}"] == (keys / name).read_bytes()
    assert not any(name.endswith(".key") for name in files)

    shutil.move(keys / "retired", tmp_path / "away")  # the key that signed the first segments is not known any more
    assert len(verify(archived).findings) == 2
    for name in ("retired/20.pub", "retired/20.checkpoint"):  # back from the archive itself
        (keys / name).parent.mkdir(exist_ok=True)
        (keys / name).write_bytes(files[f"keys/{name}"])
    assert len(LogKeys.read(keys).all()) == 2
    assert verify(archived).findings == []

    shutil.rmtree(archived.home / "audit")
    here = Here(folders, archived.home / "audit" / "tiles", lambda: archived.objects)
    assert repair(here, silent, from_archive=True).size == 26
    archived = opened(tmp_path)
    assert [archived.log.leaf(index) for index in range(26)] == before
    archived.append(26, 27)
    assert await archived.archive() == 28
    assert verify(archived).findings == []
    archived.close()


def test_without_a_public_key_nothing_is_verified(tmp_path: Path) -> None:
    archived = opened(tmp_path)
    archived.close()
    keys = archived.home / "keys"
    assert len(log_verifiers(keys, "affidavit.local/test")) == 1
    (keys / "log.pub").unlink()
    with pytest.raises(AffidavitError, match=r"log\.pub is missing") as refused:
        log_verifiers(keys, "affidavit.local/test")
    assert refused.value.reason == "LOG_UNAVAILABLE"


async def test_models_are_archived_as_they_were_signed_also_when_they_are_not_installed_any_more(
    tmp_path: Path,
) -> None:
    models = tmp_path / "models"
    shutil.copytree(default_models_folder(), models)
    bundle = ModelFolder(models).bundle("document", "promoted")
    archived = opened(tmp_path, models)
    SignedModels(archived.home / "models").keep(bundle, Ed25519PrivateKey.generate)
    steps = [
        {"service": "ocr", "model": m.card.model_id, "version": m.card.version, "model_hash": m.model_hash}
        for m in bundle.members.values()
    ]
    shutil.rmtree(models)
    archived.append(0, 1, bundle=bundle.reference, steps=steps)
    await archived.archive()
    (manifest,) = [listed.manifest for listed in list_archive(archived.objects)]
    kept = {str(p.relative_to(archived.home)): p.read_bytes() for p in (archived.home / "models").rglob("model.*")}
    assert len(kept) == 4 * len(bundle.members) + 3
    assert kept.items() <= archived_files(archived, manifest).items()
    assert manifest.missing == ()
    archived.close()

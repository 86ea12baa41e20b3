"""Models are signed when they are first used, once, and packed as they were then."""

import hashlib
import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.keys import parse_public_pem
from affidavit.libs.evidence.modelkey import model_key
from affidavit.libs.models import ModelFolder, default_models_folder
from affidavit.libs.models.signed import SignedModels
from affidavit.tools.auditpack.models import model_files
from tests.unit.auditpack.test_verify import BUNDLE, MODELS

ROOT = default_models_folder()
OTHER = Ed25519PrivateKey.generate()


def installed(root: Path = ROOT):
    return ModelFolder(root).bundle("document", BUNDLE)


def used() -> frozenset[bytes]:
    return frozenset(member.model_hash for member in installed().members.values())


def never() -> Ed25519PrivateKey:
    raise AssertionError("nothing is to be signed")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_each_model_and_the_list_of_them_lie_under_their_hash_with_a_signature_that_holds(tmp_path: Path) -> None:
    signed = SignedModels(tmp_path).keep(installed(), lambda: MODELS)
    folders = [tmp_path / "manifests" / model_hash.hex() for model_hash in used()] + [signed.folder]
    assert set(signed.models.values()) == used()
    assert {path.parent for path in tmp_path.rglob("*") if path.is_file()} == set(folders)
    for folder in folders:
        manifest, card = (folder / "model.manifest").read_bytes(), "model.yaml"
        assert hashlib.sha256(manifest).hexdigest() == folder.name
        parse_public_pem((folder / "model.pub").read_bytes()).verify((folder / "model.sig").read_bytes(), manifest)
        if folder != signed.folder:
            assert f"{hashlib.sha256((folder / card).read_bytes()).hexdigest()}  {card}\n".encode() in manifest


def test_a_bundle_is_signed_once_and_packs_the_same_bytes_when_key_and_bundle_are_gone(tmp_path: Path) -> None:
    kept, models = SignedModels(tmp_path / "kept"), tmp_path / "models"
    shutil.copytree(ROOT, models)
    kept.keep(installed(models), lambda: MODELS)
    before = contents(tmp_path / "kept")
    kept.keep(installed(models), never)
    packed = model_files(models, kept, BUNDLE, used(), lambda: OTHER).files
    shutil.rmtree(models)
    assert model_files(models, kept, BUNDLE, used(), never).files == packed
    MODELS.public_key().verify(packed["model.sig"], packed["model.manifest"])
    assert contents(tmp_path / "kept") == before
    with pytest.raises(AffidavitError, match="no bundle"):  # models that it never had
        model_files(models, kept, BUNDLE, used() | {bytes(32)}, never)


def test_what_a_crash_left_half_made_is_not_taken_and_is_made_again(tmp_path: Path) -> None:
    left = tmp_path / "bundles" / BUNDLE / "new-abc"
    left.mkdir(parents=True)
    (left / "model.manifest").write_bytes(b"half")
    kept = SignedModels(tmp_path)
    assert kept.find(BUNDLE, frozenset()) is None
    assert kept.keep(installed(), lambda: MODELS) == kept.find(BUNDLE, used())


def test_a_manifest_that_is_not_the_kept_one_is_named(tmp_path: Path) -> None:
    kept = SignedModels(tmp_path)
    signed = kept.keep(installed(), lambda: MODELS)
    assert kept.find(BUNDLE, used()) == signed
    for path in (signed.folder / "model.manifest", kept.folder_of(min(used())) / "model.manifest"):
        whole = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(whole + b"\n")
        with pytest.raises(AffidavitError) as refused:
            model_files(ROOT, kept, BUNDLE, used(), never)
        assert (refused.value.reason, str(path) in refused.value.message) == ("HASH_MISMATCH", True)
        path.write_bytes(whole)


def test_the_models_key_is_made_once(tmp_path: Path) -> None:
    assert model_key(tmp_path).private_bytes_raw() == model_key(tmp_path).private_bytes_raw()

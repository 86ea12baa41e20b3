"""Nothing loads unless it is what was pinned, and a card that says something unknown is refused by field."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from affidavit.libs.errors import AffidavitError
from affidavit.libs.models import ModelFolder, default_models_folder, load_weights
from affidavit.services.ocr.rules import OcrRules

VERSION = "20261130.1"  # of the models
BUNDLE_VERSION = "20261203.1"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A copy of the repository's cards that a test may spoil."""
    return Path(shutil.copytree(default_models_folder(), tmp_path / "models"))


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new), "utf-8")


def own_weights(models: Path, data: bytes) -> None:
    """The recognition card with weights beside it instead of in a package."""
    card = models / "ppocr-rec-small" / VERSION / "model.yaml"
    replace(card, "    package: rapidocr\n", "")
    replace(card, "rapidocr/models/PP-OCRv6_rec_small.onnx", "rec.onnx")
    replace(card, "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884", hashlib.sha256(data).hexdigest())
    (card.parent / "rec.onnx").write_bytes(data)


@pytest.mark.parametrize("selector", ["", "promoted", f"document@{BUNDLE_VERSION}"])
def test_a_selector_finds_the_repositorys_bundle(selector: str) -> None:
    bundle = ModelFolder(default_models_folder()).bundle("document", selector)
    assert bundle.reference == f"document@{BUNDLE_VERSION}"
    assert set(bundle.members) == {"detection", "recognition"}
    assert bundle.rules(OcrRules).min_confidence == 0.3


@pytest.mark.parametrize("selector", ["document@20200101.1", "canary", "risk@20261130.1", "@", "document@../x"])
def test_an_unknown_bundle_is_answered_with_what_there_is(selector: str) -> None:
    with pytest.raises(AffidavitError, match=rf"document@{BUNDLE_VERSION}, promoted") as caught:
        ModelFolder(default_models_folder()).bundle("document", selector)
    assert caught.value.reason == "BUNDLE_NOT_FOUND"


def test_an_empty_models_folder_says_which_setting_to_change(tmp_path: Path) -> None:
    with pytest.raises(AffidavitError, match="set models_folder"):
        ModelFolder(tmp_path).bundle("document")


def test_the_model_hash_is_that_of_a_manifest_which_sha256sum_can_check() -> None:
    member = ModelFolder(default_models_folder()).bundle("document").members["recognition"]
    card = (member.folder / "model.yaml").read_bytes()
    names = {
        "model.yaml": hashlib.sha256(card).hexdigest(),
        "PP-OCRv6_rec_small.onnx": member.card.files["weights"].sha256,
    }
    assert member.manifest.decode() == "".join(f"{names[name]}  {name}\n" for name in sorted(names))
    assert member.model_hash == hashlib.sha256(member.manifest).digest()


def test_a_changed_card_has_another_model_hash_and_a_changed_bundle_another_bundle_hash(models: Path) -> None:
    before = ModelFolder(models).bundle("document")
    replace(models / "ppocr-rec-small" / VERSION / "model.yaml", "p95_ms: 500", "p95_ms: 501")
    after = ModelFolder(models).bundle("document")
    assert before.members["recognition"].model_hash != after.members["recognition"].model_hash
    assert before.bundle_hash == after.bundle_hash
    replace(before.file, "threshold: 0.3", "threshold: 0.4")
    assert ModelFolder(models).bundle("document").bundle_hash != before.bundle_hash


@pytest.mark.parametrize(
    ("file", "old", "new", "field"),
    [
        ("ppocr-rec-small", "framework: onnx", "framework: excel", "framework"),
        ("ppocr-rec-small", "trust: pinned", "trust: pinned\ncolour: red", "colour"),
        ("ppocr-rec-small", "sha256: 6f", "sha256: zz", "files.weights.sha256"),
        ("ppocr-rec-small", "path: rapidocr", "path: ../../rapidocr", "files.weights.path"),
        ("ppocr-det-small", "version: 20261130.1", "version: 2026", "version"),
        ("bundles/document", "engine: onnxruntime", "engine: abacus", "engine"),
    ],
)
def test_a_card_that_does_not_fit_is_refused_with_file_and_field(models: Path, file, old, new, field) -> None:
    bundle = file.startswith("bundles")
    card = models / file / (BUNDLE_VERSION if bundle else VERSION) / ("bundle.yaml" if bundle else "model.yaml")
    replace(card, old, new)
    with pytest.raises(AffidavitError) as caught:
        ModelFolder(models).bundle("document")
    assert caught.value.reason == "MODEL_UNVERIFIED"
    assert f"{card}: " in str(caught.value)
    assert field in str(caught.value)


def test_rules_that_the_pipeline_does_not_know_are_refused_with_file_and_field(models: Path) -> None:
    file = models / "bundles" / "document" / BUNDLE_VERSION / "bundle.yaml"
    replace(file, "min_confidence: 0.3", "min_confidence: 0.3\n  max_confidence: 1")
    with pytest.raises(AffidavitError, match=r"bundle.yaml: rules: max_confidence"):
        ModelFolder(models).bundle("document").rules(OcrRules)


def test_weights_are_handed_on_only_with_the_pinned_hash(models: Path) -> None:
    own_weights(models, b"weights")
    member = ModelFolder(models).bundle("document").members["recognition"]
    with load_weights(member) as weights:
        assert Path(weights.path).read_bytes() == b"weights"
    (member.folder / "rec.onnx").write_bytes(b"Weights")
    with pytest.raises(AffidavitError, match=hashlib.sha256(b"Weights").hexdigest()) as caught:
        load_weights(member)
    assert caught.value.reason == "MODEL_UNVERIFIED"


def test_verified_weights_cannot_change_any_more(models: Path) -> None:
    own_weights(models, b"weights")
    member = ModelFolder(models).bundle("document").members["recognition"]
    with load_weights(member) as weights:
        (member.folder / "rec.onnx").write_bytes(b"changed")
        with open(weights.path, "r+b", buffering=0) as file, pytest.raises(OSError, match="not permitted"):
            file.write(b"x")
        with pytest.raises(OSError, match="not permitted"):
            os.truncate(weights.path, 3)
        assert Path(weights.path).read_bytes() == b"weights"


def test_missing_weights_are_named(models: Path) -> None:
    own_weights(models, b"weights")
    member = ModelFolder(models).bundle("document").members["recognition"]
    (member.folder / "rec.onnx").unlink()
    with pytest.raises(AffidavitError, match=r"rec\.onnx: No such file"):
        load_weights(member)


def test_a_package_that_is_not_installed_is_named_with_what_to_install(models: Path) -> None:
    replace(models / "ppocr-det-small" / VERSION / "model.yaml", "package: rapidocr", "package: no-such-package")
    member = ModelFolder(models).bundle("document").members["detection"]
    with pytest.raises(AffidavitError, match=r"no-such-package is not installed; pip install -r requirements/weights"):
        load_weights(member)

"""A setting comes from its flag, else the environment, else affidavit.yaml, else the default, and says which."""

from pathlib import Path

import pytest
from pydantic import BaseModel, Field

from affidavit.libs.settings import SettingsError, load


class Settings(BaseModel):
    """A service."""

    max_batch: int = Field(6, ge=1, le=64, description="crops in a batch")
    name: str = Field("x", description="100% of it")


def environment(tmp_path: Path, yaml: str = "", **more: str) -> dict[str, str]:
    path = tmp_path / "affidavit.yaml"
    path.write_text(yaml, "utf-8")
    return {"AFFIDAVIT_CONFIG": str(path), **more}


def test_the_nearer_origin_wins(tmp_path: Path) -> None:
    yaml = "ocr: {max_batch: 2, name: file}"
    env = environment(tmp_path, yaml, AFFIDAVIT_OCR_MAX_BATCH="3")
    loaded = load(Settings, "ocr", [], env)
    assert (loaded.values.max_batch, loaded.values.name) == (3, "file")
    assert loaded.origins == {"max_batch": "$AFFIDAVIT_OCR_MAX_BATCH", "name": env["AFFIDAVIT_CONFIG"]}
    flagged = load(Settings, "ocr", ["--max-batch", "4"], env)
    assert (flagged.values.max_batch, flagged.origins["max_batch"]) == (4, "--max-batch")
    assert load(Settings, "ocr", [], environment(tmp_path)).origins["max_batch"] == "default"


@pytest.mark.parametrize(
    ("yaml", "env", "says"),
    [
        ("ocr: {max_batch: 0}", {}, "max_batch"),
        ("", {"AFFIDAVIT_OCR_MAX_BATCH": "many"}, r"\$AFFIDAVIT_OCR_MAX_BATCH"),
        ("ocr: {max_bach: 2}", {}, "max_bach"),
        ("ocr: [1]", {}, "mapping"),
        ("ocr: {", {}, "affidavit.yaml"),
    ],
)
def test_a_setting_that_does_not_fit_is_named_with_its_origin(
    tmp_path: Path, yaml: str, env: dict[str, str], says: str
) -> None:
    with pytest.raises(SettingsError, match=says):
        load(Settings, "ocr", [], environment(tmp_path, yaml, **env))

"""Eighty odd PDFs, each with the outcome that its manifest says."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.preprocess_process import SHARED, PreprocessProcess, render, serving

MANIFEST: list[dict[str, Any]] = [
    json.loads(line) for line in (SHARED / "pdfs" / "manifest.jsonl").read_text("utf-8").splitlines()
]
# A password that a person would type, beside the one in the manifest: SASLprep makes them the same.
TYPED = {"pdfs/pdfjs_saslprep-r6.pdf": "S\u00aaSL\u00adprep"}


@pytest.fixture(scope="module")
def service() -> Iterator[PreprocessProcess]:
    with serving() as process:
        yield process


def test_the_manifest_is_whole() -> None:
    assert len(MANIFEST) == 80


@pytest.mark.parametrize("entry", MANIFEST, ids=[entry["file"].removeprefix("pdfs/") for entry in MANIFEST])
async def test_a_file_ends_as_its_manifest_says(service: PreprocessProcess, entry: dict[str, Any]) -> None:
    data = (SHARED / entry["file"]).read_bytes()
    count = entry["pages"] or entry.get("pages_with_password", 0)
    pages = [(1, min(5, count))] if count else []
    match entry["expect"]:
        case "ok":
            rendering = await render(service, data, pages=pages)
            assert rendering.finished, rendering.error
            assert rendering.opened is not None
            assert rendering.opened.page_count == count
            assert len(rendering.failures) == entry.get("bad_pages_first5", 0)
            assert {failure.reason for failure in rendering.failures} <= {"PAGE_BROKEN"}
            assert len(rendering.pages) == min(5, count) - len(rendering.failures) > 0
            first = rendering.pages[0].image
            if first.page_number == 1 and max(entry["size_pt"]) < 1e6:
                assert [first.page_width / 100, first.page_height / 100] == pytest.approx(entry["size_pt"], abs=0.06)
        case "password":
            assert (await render(service, data)).reason == "PASSWORD_REQUIRED"
            assert (await render(service, data, password="surely not this")).reason == "PASSWORD_WRONG"
            for password in filter(None, [entry.get("password"), TYPED.get(entry["file"])]):
                rendering = await render(service, data, pages=pages, password=password)
                assert rendering.finished, rendering.error
                assert len(rendering.pages) == min(5, count)
        case "invalid":
            rendering = await render(service, data)
            if rendering.finished:
                assert rendering.pages == []
                assert {failure.reason for failure in rendering.failures} == {"PAGE_BROKEN"}
            else:
                assert rendering.reason in {"UNSUPPORTED_FORMAT", "DAMAGED_DOCUMENT", "EMPTY_INPUT"}
        case "empty":
            assert (await render(service, data)).reason == "NO_PAGES"
        case other:
            pytest.fail(f"manifest expects {other}")

"""What a command line names, and where each answer goes, is decided before any work begins."""

from pathlib import Path

import pytest

from affidavit.tools.cli.inputs import STDIN, Input, UsageFault, destination, find_inputs, write_atomically
from affidavit.tools.client.document import PageRange, parse_pages, request_id


@pytest.mark.parametrize(
    ("text", "ranges"),
    [("", []), ("3", [(3, 3)]), ("1-3,7", [(1, 3), (7, 7)]), ("5-", [(5, 0)]), (" 1 , 4-9", [(1, 1), (4, 9)])],
)
def test_pages_are_read_as_people_write_them(text: str, ranges: list[tuple[int, int]]) -> None:
    assert parse_pages(text) == [PageRange(first, last) for first, last in ranges]


@pytest.mark.parametrize("text", ["0", "3-1", "a", "1,,2", "-3", "2,1", "1-,5", "1-3,3"])
def test_pages_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="page"):
        parse_pages(text)


def test_the_request_id_follows_from_input_options_and_bundle() -> None:
    base = request_id(b"i" * 32, [], "document@1")
    assert base == request_id(b"i" * 32, [], "document@1")
    others = {
        request_id(b"j" * 32, [], "document@1"),
        request_id(b"i" * 32, [PageRange(1, 2)], "document@1"),
        request_id(b"i" * 32, [], "document@2"),
    }
    assert len(others | {base}) == 4


def test_folders_are_searched_for_documents_in_order(tmp_path: Path) -> None:
    for name in ("b.pdf", "a.PNG", "sub/c.tif", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [i.stem for i in find_inputs([tmp_path])] == ["a", "b", "sub/c"]


def test_files_of_one_stem_get_outputs_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    for name in ("a.pdf", "a.png", "x/a.pdf"):
        (tmp_path / name).touch()
    stems = [i.stem for i in find_inputs([tmp_path / "a.pdf", tmp_path / "a.png", tmp_path / "x/a.pdf"])]
    assert len(set(stems)) == 3


@pytest.mark.parametrize("names", [["missing.pdf"], ["empty"], ["-", "-"]])
def test_inputs_that_are_not_there_are_named(tmp_path: Path, names: list[str], monkeypatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageFault):
        find_inputs([Path(name) for name in names])


ONE = [Input(Path("a.pdf"), "a")]
TWO = [*ONE, Input(STDIN, "stdin")]


def test_one_input_goes_to_the_file_named_in_the_format_of_its_suffix(tmp_path: Path) -> None:
    assert destination(ONE, tmp_path / "o.json", None, None).format == "json"
    assert destination(ONE, tmp_path / "o.txt", None, None).format == "text"
    assert destination(ONE, None, None, None).format == "text"


def test_several_inputs_go_to_a_folder_with_receipts_beside(tmp_path: Path) -> None:
    target = destination(TWO, tmp_path / "out", None, None)
    assert target.result_path(TWO[0]) == tmp_path / "out" / "a.json"
    assert target.receipt_path(TWO[0]) == tmp_path / "out" / "a.receipt.json"


@pytest.mark.parametrize(
    ("inputs", "out", "format", "receipt"),
    [
        (ONE, "no/such/o.json", None, None),
        (ONE, None, "xml", None),
        (TWO, None, None, "r.json"),
        (TWO, "file", None, None),
        (TWO, "folder/", None, "r.json"),
        (ONE, None, None, "no/such/r.json"),
    ],
)
def test_outputs_that_cannot_be_written_are_refused_first(
    tmp_path: Path, monkeypatch, inputs, out, format, receipt
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageFault):
        destination(inputs, Path(out) if out else None, format, Path(receipt) if receipt else None)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_atomically(tmp_path / "o", b"whole")
    assert [p.name for p in tmp_path.iterdir()] == ["o"]
    with pytest.raises((FileExistsError, NotADirectoryError)):
        write_atomically(tmp_path / "o" / "below", b"x")
    assert (tmp_path / "o").read_bytes() == b"whole"

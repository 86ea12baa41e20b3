"""The command as people use it: files and folders, standard input, exit codes, receipts that verify or do not."""

import json
import shutil
from pathlib import Path

import pytest

from tests.integration.conftest import LETTER, Stack


def test_text_goes_to_standard_output_with_a_form_feed_after_each_page(stack: Stack) -> None:
    run = stack.run("ocr", str(LETTER))
    assert run.returncode == 0, run.stderr
    pages = run.stdout.decode().split("\f")
    assert [page.splitlines()[0] for page in pages[:3]] == [
        "Harbour Cooperative Bank",
        "Documents received",
        "Your rights",
    ]
    assert pages[3] == ""
    assert run.stderr == b""


def test_a_result_its_receipt_and_its_input_verify_and_nothing_else_does(stack: Stack, tmp_path: Path) -> None:
    out, receipt = tmp_path / "out.json", tmp_path / "r.receipt.json"
    assert stack.run("ocr", str(LETTER), "-o", str(out), "--receipt", str(receipt)).returncode == 0
    good = stack.run("verify", str(receipt), "--result", str(out), "--input", str(LETTER))
    assert (good.returncode, good.stdout.startswith(b"verified")) == (0, True)
    changed = tmp_path / "changed.json"
    changed.write_bytes(out.read_bytes().replace(b"Harbour", b"Harbor", 1))
    bad = stack.run("verify", str(receipt), "--result", str(changed))
    assert bad.returncode == 4
    assert b"result" in bad.stderr
    assert stack.run("verify", str(receipt), "--input", str(out)).returncode == 4
    content = json.loads(receipt.read_text())
    content["index"] = str(int(content["index"]) + 1)
    forged = tmp_path / "forged.receipt.json"
    forged.write_text(json.dumps(content))
    assert stack.run("verify", str(forged)).returncode == 4


def test_folders_and_files_go_to_a_folder_and_one_bad_file_does_not_stop_the_rest(
    stack: Stack, tmp_path: Path, shared_data: Path
) -> None:
    scans = tmp_path / "scans"
    scans.mkdir()
    shutil.copy(shared_data / "ocr/accuracy/tjs_bill.png", scans / "bill.png")
    (scans / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")
    run = stack.run("ocr", str(scans), str(LETTER), "--pages", "1", "-o", str(tmp_path / "answers"))
    assert run.returncode == 1
    assert b"broken.pdf" in run.stderr
    written = {p.name for p in (tmp_path / "answers").iterdir()}
    assert written == {"bill.json", "bill.receipt.json", "letter-scan.json", "letter-scan.receipt.json"}


def test_standard_input_is_read(stack: Stack) -> None:
    run = stack.run("ocr", "-", "--pages", "3", stdin=LETTER.read_bytes())
    assert run.returncode == 0
    assert run.stdout.startswith(b"Your rights")


def test_json_on_standard_output_is_the_exact_result(stack: Stack, tmp_path: Path) -> None:
    run = stack.run("ocr", str(LETTER), "--format", "json", "--pages", "3")
    out = tmp_path / "o.json"
    stack.run("ocr", str(LETTER), "--pages", "3", "-o", str(out))
    assert run.stdout == out.read_bytes()


@pytest.mark.parametrize(
    "arguments",
    [["ocr"], ["ocr", "nowhere.pdf"], ["ocr", "--pages", "3-1", str(LETTER)], ["verify", "nowhere"], ["nonsense"]],
)
def test_wrong_use_is_exit_code_2(stack: Stack, arguments: list[str]) -> None:
    run = stack.run(*arguments)
    assert run.returncode == 2
    assert run.stderr


def test_a_password_opens_what_it_should(stack: Stack, shared_data: Path) -> None:
    file = str(shared_data / "ocr/pdfs/pp2_encrypted.pdf")
    refused = stack.run("ocr", file)
    assert refused.returncode == 1
    assert b"PASSWORD_REQUIRED" in refused.stderr
    assert b"PASSWORD_WRONG" in stack.run("ocr", file, "--password", "no").stderr
    assert stack.run("ocr", file, "--password", "test_user").returncode == 0


def test_status_shows_each_service_with_a_pid_of_its_own(stack: Stack) -> None:
    run = stack.run("status", "--json")
    assert run.returncode == 0
    services = json.loads(run.stdout)["services"]
    assert [s["name"] for s in services] == ["audit", "preprocess", "ocr", "ingress"]
    assert len({s["pid"] for s in services}) == 4
    assert all(s["ready"] for s in services)


def test_a_second_stack_on_the_same_data_says_who_holds_it(stack: Stack) -> None:
    run = stack.run("up")
    assert run.returncode == 2
    assert str(stack.process.pid).encode() in run.stderr

"""The audit commands as people use them, on a running stack: read, prove, count, pack, export, replay."""

import json
import signal
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from affidavit.libs.evidence.receipt import read_receipt
from tests.integration.conftest import AFFIDAVIT, LETTER, Stack


@dataclass(frozen=True)
class Answered:
    """The letter's third page, read and recorded."""

    result: Path
    receipt: Path
    index: int  # of the closing record
    request_id: str


@pytest.fixture(scope="module")
def answered(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Answered:
    folder = tmp_path_factory.mktemp("answered")
    result, receipt = folder / "o.json", folder / "o.receipt.json"
    run = stack.run("ocr", str(LETTER), "--pages", "3", "-o", str(result), "--receipt", str(receipt))
    assert run.returncode == 0, run.stderr
    leaf = json.loads(read_receipt(receipt).leaf)
    return Answered(result, receipt, int(leaf["index"]), leaf["request_id"])


def records(stack: Stack, *arguments: str) -> list[dict]:
    run = stack.run("audit", "ls", "--json", "--limit", "0", *arguments)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def refused(run: subprocess.CompletedProcess[bytes], code: int, words: str) -> None:
    assert (run.returncode, words in run.stderr.decode()) == (code, True), run.stderr


def test_ls_lists_a_documents_records_in_order_and_show_gives_the_leafs_bytes(stack, answered) -> None:
    of_request = records(stack, "--request", answered.request_id)
    assert [(r["kind"], r["phase"]) for r in of_request] == [
        ("document", "opened"),
        ("page", "single"),
        ("document", "closed"),
    ]
    assert int(of_request[-1]["index"]) == answered.index
    table = stack.run("audit", "ls", "--request", answered.request_id).stdout.decode().splitlines()
    assert table[0].split()[0] == "index"
    assert [line.split()[0] for line in table[1:]] == [r["index"] for r in of_request]
    shown = stack.run("audit", "show", str(answered.index), "--json").stdout
    assert shown == read_receipt(answered.receipt).leaf + b"\n"
    assert "kept" in stack.run("audit", "show", str(answered.index)).stdout.decode()
    refused(stack.run("audit", "ls", "--kind", "nonsense"), 2, "no kind")
    refused(stack.run("audit", "show", "99999999"), 1, "RECORD_NOT_FOUND")


def test_prove_gives_a_receipt_that_verifies_and_a_proof_that_others_read(stack, answered, tmp_path) -> None:
    receipt, proof = tmp_path / "p.receipt.json", tmp_path / "p.tlog-proof"
    assert stack.run("audit", "prove", str(answered.index), "-o", str(receipt)).returncode == 0
    good = stack.run("verify", str(receipt), "--result", str(answered.result), "--input", str(LETTER))
    assert good.returncode == 0, good.stderr
    assert stack.run("audit", "prove", str(answered.index), "--tlog-proof", "-o", str(proof)).returncode == 0
    assert proof.read_text().splitlines()[:2] == ["c2sp.org/tlog-proof@v1", f"index {answered.index}"]


def test_usage_counts_what_ls_lists(stack, answered) -> None:
    run = stack.run("audit", "ls", "--json", "--limit", "0")
    said = json.loads(stack.run("usage", "--by", "bundle", "--json").stdout)
    leaves = [json.loads(line) for line in run.stdout.splitlines()]
    closed = [r for r in leaves if (r["kind"], r["phase"]) == ("document", "closed") and r["output_commitment"]]
    assert sum(row["documents"] for row in said["usage"]) == len(closed) >= 1
    assert sum(row["pages"] for row in said["usage"]) == sum(r["kind"] == "page" for r in leaves) >= 1
    assert (said["first_index"], said["last_index"]) == (0, len(leaves) - 1)
    csv = stack.run("usage", "--csv").stdout.decode().splitlines()
    assert csv[0] == "tenant,bundle,documents,pages,decisions,latency_us,first_index,last_index"
    assert len(csv) >= 2


def test_a_pack_of_an_old_answer_verifies_alone_and_is_the_same_bytes_each_time(stack, answered, tmp_path) -> None:
    packs = [tmp_path / "a.zip", tmp_path / "b.zip"]
    arguments = ["audit", "pack", str(answered.index), "--result", str(answered.result), "--input", str(LETTER)]
    for pack in packs:
        run = stack.run(*arguments, "--receipt", str(answered.receipt), "-o", str(pack))
        assert run.returncode == 0, run.stderr
    assert packs[0].read_bytes() == packs[1].read_bytes()
    verify_pack(packs[0], stack, tmp_path / "unpacked")
    changed = tmp_path / "changed.json"
    changed.write_bytes(answered.result.read_bytes().replace(b'"v":1', b'"v":2'))
    assert changed.read_bytes() != answered.result.read_bytes()
    refused(stack.run("audit", "pack", str(answered.index), "--result", str(changed)), 4, "NOT packed: result")


def test_audit_pack_reads_and_packs_in_one_go(stack, tmp_path) -> None:
    pack = tmp_path / "audit.zip"
    command = [Path(sys.executable).with_name("audit-pack"), "--input", LETTER, "--output", pack]
    run = subprocess.run(list(map(str, command)), env=stack.environment, capture_output=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    verify_pack(pack, stack, tmp_path / "unpacked")


def verify_pack(pack: Path, stack: Stack, folder: Path) -> None:
    """As an auditor does: unpack, and run the pack's own program with the standard library alone."""
    zipfile.ZipFile(pack).extractall(folder)
    command = [sys.executable, "-I", "-S", folder / "verify.py", "--log-key", stack.log_key, "--input", LETTER]
    good = subprocess.run(list(map(str, command)), capture_output=True, timeout=60, check=False)
    assert (good.returncode, good.stdout.startswith(b"verified: record")) == (0, True), good.stderr
    leaf = folder / "record.json"
    leaf.write_bytes(leaf.read_bytes().replace(b'"status":"ok"', b'"status":"OK"'))
    assert subprocess.run(list(map(str, command)), capture_output=True, timeout=60, check=False).returncode == 1


def test_an_export_holds_every_record_of_its_span_and_a_changed_one_is_refused(stack, answered, tmp_path) -> None:
    leaves = records(stack)
    until = leaves[answered.index]["time"]
    inside = [r for r in leaves if r["time"] < until]
    assert len(inside) >= 3
    export = tmp_path / "day.jsonl"
    run = stack.run("audit", "export", "--from", leaves[0]["time"], "--to", until, "-o", str(export))
    assert run.returncode == 0, run.stderr
    lines = export.read_bytes().splitlines(keepends=True)
    assert len(lines) == 1 + len(inside) + 1  # the header, the span, and the record that follows it
    good = stack.run("audit", "verify-export", str(export)).stdout.decode()
    assert good.startswith(f"verified: {len(inside)} records (0 to {len(inside) - 1})")
    assert "not ruled out" not in good
    broken = tmp_path / "broken.jsonl"
    for name, changed in {
        "dropped": lines[:2] + lines[3:],
        "doubled": lines[:2] + lines[1:],
        "altered": [*lines[:2], lines[2].replace(b'"tenant":"default"', b'"tenant":"nobody"'), *lines[3:]],
        "cut": lines[:-1],
    }.items():
        assert changed != lines, name
        broken.write_bytes(b"".join(changed))
        refused(stack.run("audit", "verify-export", str(broken)), 4, "NOT verified")
    refused(stack.run("audit", "export", "--from", until, "--to", until, "-o", str(broken)), 2, "--to is not after")
    refused(stack.run("audit", "export", "-o", str(tmp_path / "nowhere" / "x")), 2, "is no folder")


def test_a_replay_gives_the_same_bits_and_leaves_the_log_alone(stack, answered, tmp_path) -> None:
    before, out = len(records(stack)), tmp_path / "again.json"
    arguments = ["audit", "replay", str(answered.index), "--input", str(LETTER)]
    run = stack.run(*arguments, "--json", "-o", str(out))
    assert run.returncode == 0, run.stderr
    said = {"index": answered.index, "verdict": "bitwise the same", "first_difference": None, "changed": []}
    assert json.loads(run.stdout) == said
    assert out.read_bytes() == answered.result.read_bytes()
    assert len(records(stack)) == before
    refused(stack.run("audit", "replay", str(answered.index), "--input", str(out)), 4, "NOT replayed: input")
    refused(stack.run(*arguments[:2], str(answered.index - 1), *arguments[3:]), 2, "closes no answered document")


def test_a_replay_that_draws_pages_otherwise_names_the_first_difference(stack, answered, monkeypatch) -> None:
    monkeypatch.setitem(stack.environment, "AFFIDAVIT_PREPROCESS_PAGE_PIXELS", "1000000")
    arguments = ["audit", "replay", str(answered.index), "--input", str(LETTER)]
    run = stack.run(*arguments, "--result", str(answered.result))
    assert run.returncode == 4, run.stderr
    said = run.stdout.decode().splitlines()
    assert said[0].startswith("different: record")
    assert said[1].startswith("  page 3, ")
    assert "recorded" in said[1]
    assert "replayed" in said[1]


def test_an_encrypted_document_replays_with_its_password_and_not_without(stack, shared_data, tmp_path) -> None:
    encrypted, result = shared_data / "ocr" / "pdfs" / "pdfminer_rc4-128.pdf", tmp_path / "o.json"
    receipt = tmp_path / "o.receipt.json"
    files = [str(encrypted), "-o", str(result), "--receipt", str(receipt)]
    read = stack.run("ocr", *files, "--pages", "1", "--password", "foo")
    assert read.returncode == 0, read.stderr
    leaf = read_receipt(receipt).leaf
    assert b"foo" not in leaf
    arguments = ["audit", "replay", str(int(json.loads(leaf)["index"])), "--input", str(encrypted)]
    run = stack.run(*arguments, "--password", "foo", "--result", str(result), "--json")
    assert (run.returncode, json.loads(run.stdout)["verdict"]) == (0, "bitwise the same"), run.stderr
    refused(stack.run(*arguments, "--result", str(result)), 1, "PASSWORD_REQUIRED")


def test_tail_shows_the_last_records_and_each_new_one_until_interrupted(stack, answered, tmp_path) -> None:
    before = records(stack)
    process = subprocess.Popen(
        [*AFFIDAVIT, "audit", "tail", "-n", "2", "--json"], env=stack.environment, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    shown = [json.loads(process.stdout.readline()) for _ in range(2)]
    assert shown == before[-2:]
    assert stack.run("ocr", str(LETTER), "--pages", "2", "-o", str(tmp_path / "o.json")).returncode == 0
    new = [json.loads(process.stdout.readline()) for _ in range(3)]
    assert new == records(stack)[len(before) :]
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130

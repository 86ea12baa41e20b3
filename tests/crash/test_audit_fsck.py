"""`affidavit audit fsck`: total. Whatever is changed in a stopped log, in whichever family, is named, and nothing is
written."""

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from affidavit.libs.evidence import merkle
from affidavit.services.audit.fsck import Report, check_log, stopped
from affidavit.services.audit.opening import LogFolders
from affidavit.services.audit.store import Store
from affidavit.services.audit.storecheck import BACKUP
from tests.contract.audit_process import AuditProcess, append, item

pytestmark = pytest.mark.slow  # each starts services and commands anew

COUNT = 600  # two full tiles and a partial one


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("log") / "home"
    audit = AuditProcess(home)

    async def fill() -> None:
        async with audit.stub() as stub:
            assert len(await append(stub, [[item(f"r-{n}")] for n in range(COUNT)])) == COUNT

    asyncio.run(fill())
    assert audit.stop() == 0
    return home


@pytest.fixture
def home(filled, tmp_path) -> Path:
    return shutil.copytree(filled, tmp_path / "home")


def run(home: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "affidavit.tools.cli", "audit", "fsck", "--home", str(home), *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def report(home: Path) -> Report:
    """The findings of a damaged log; the whole folder is left byte for byte as it was."""
    before = digests(home)
    folders = LogFolders.below(home)
    with stopped(folders.lock):
        found = check_log(folders, home / "audit" / "tiles", lambda what, done, total: None)
    assert digests(home) == before, "fsck wrote something"
    assert found.findings
    assert all(finding.restore for finding in found.findings)
    return found


def findings(home: Path) -> list[str]:
    return [f"{finding.part}: {finding.what}" for finding in report(home).findings]


def digests(home: Path) -> dict[str, bytes]:
    paths = sorted(path for path in home.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).digest() for path in paths}


def place(index: int) -> bytes:
    return index.to_bytes(8, "big")


def change(home: Path, family: str, key: bytes, value: bytes | None) -> None:
    """Put or delete behind the service's back, as an operator with a RocksDB tool could."""
    store = Store(home / "audit" / "store")
    part = store._database._families[family]
    if value is None:
        part.delete(key)
    else:
        part[key] = value
    store.close()


def look(home: Path, family: str, key: bytes) -> bytes:
    store = Store(home / "audit" / "store", look=True)
    try:
        return dict(store.entries(family))[key]
    finally:
        store.close()


def test_a_whole_log_is_whole_and_nothing_is_written(home) -> None:
    before = digests(home)
    done = run(home, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert digests(home) == before
    found = json.loads(done.stdout)
    assert (found["whole"], found["size"], found["unsigned"], found["erased"]) == (True, COUNT, 0, 0)
    assert f"{COUNT} records whole under the signed head" in run(home).stdout


def test_a_killed_log_is_whole_with_its_newest_records_in_the_write_ahead_log(tmp_path) -> None:
    audit = AuditProcess(tmp_path / "home")

    async def fill() -> None:
        async with audit.stub() as stub:
            await append(stub, [[item(f"r-{n}") for n in range(10)]])

    asyncio.run(fill())
    audit.kill()
    before = digests(audit.home)
    done = run(audit.home, "--json")
    assert (done.returncode, json.loads(done.stdout)["size"]) == (0, 10), done.stdout
    assert digests(audit.home) == before


@pytest.mark.parametrize("index", [0, 7, COUNT - 1])
def test_a_changed_leaf_is_named(home, index: int) -> None:
    leaf = look(home, "leaf", place(index)).replace(b'"ok"', b'"no"')
    change(home, "leaf", place(index), leaf)
    assert f"leaf: record {index}: its bytes are not what was signed" in findings(home)


def test_missing_leaves_are_named_as_one_range_and_the_tiles_have_them(home) -> None:
    for index in (40, 41, 42):
        change(home, "leaf", place(index), None)
    found = report(home)
    assert "records 40 to 42: missing" in [finding.what for finding in found.findings]
    assert found.whole_in_tiles == COUNT


def test_a_leaf_changed_together_with_its_hash_leads_to_another_root(home) -> None:
    leaf = look(home, "leaf", place(7)).replace(b"r-7", b"r-8")
    change(home, "leaf", place(7), leaf)
    change(home, "node", b"\0" + place(7), merkle.leaf_hash(leaf))
    found = findings(home)
    assert f"store: its first {COUNT} records do not lead to the signed root" in found
    assert any("subtree of records 6 to 7 (level 1)" in line for line in found)


@pytest.mark.parametrize("lost", [True, False], ids=["missing", "changed"])
def test_a_stored_hash_of_a_leaf_is_named(home, lost: bool) -> None:
    change(home, "node", b"\0" + place(9), None if lost else bytes(32))
    words = "missing or unreadable" if lost else "its stored hash is not the leaf's, which is what was signed"
    assert findings(home)[0] == f"hash: record 9: {words}"


@pytest.mark.parametrize("lost", [True, False], ids=["missing", "changed"])
def test_a_stored_hash_of_a_subtree_is_named(home, lost: bool) -> None:
    change(home, "node", b"\3" + place(2), None if lost else bytes(32))
    assert findings(home)[0].startswith("hash: the subtree of records 16 to 23 (level 3) is missing or not that")


def test_a_missing_key_is_named(home) -> None:
    change(home, "key", b"default\0r-5\0single", None)
    assert findings(home) == [
        "key: record 5: its idempotency key is missing or there twice: it could be recorded again"
    ]


def test_a_key_of_another_record_is_named(home) -> None:
    change(home, "key", b"default\0r-5\0single", place(6))
    found = findings(home)
    assert "key: ['default', 'r-5', 'single'] names record 6, which is of another request" in found
    assert any(line.startswith("key: records 5 to 6: its idempotency key is missing or there twice") for line in found)


def test_a_side_of_another_form_is_named_and_an_erased_one_is_counted(home) -> None:
    change(home, "side", place(3), b"\2" + bytes(64))
    change(home, "side", place(4), None)
    found = report(home)
    assert [finding.what for finding in found.findings] == ["record 3: no salt and content digest of the known form"]
    assert found.erased == 1


def test_a_record_after_the_last_one_is_named(home) -> None:
    change(home, "leaf", place(COUNT), b"{}")
    assert findings(home) == [f"leaf: there is one after the last record, {COUNT - 1}"]


def test_a_store_whose_size_was_set_back_is_named(home) -> None:
    store = Store(home / "audit" / "store")
    store._database._whole[b"tree"] = place(500) + merkle.root(500, store.node)
    store.close()
    found = findings(home)
    assert f"store: it ends after 500 records: records 500 to {COUNT - 1} missing" in found


def test_bytes_changed_in_the_tables_are_named_by_record(home) -> None:
    for table in (home / "audit" / "store").glob("*.sst"):
        with table.open("r+b") as file:
            file.write(os.urandom(table.stat().st_size // 3))
    assert any("cannot be read" in line or "does not open" in line for line in findings(home))


def test_a_missing_store_and_what_the_tiles_still_have(home) -> None:
    shutil.rmtree(home / "audit" / "store")
    found = report(home)
    assert f"and with it {COUNT} records" in found.findings[0].what
    assert found.whole_in_tiles == COUNT


@pytest.mark.parametrize("content", [None, b"nonsense\n"])
def test_a_head_that_is_missing_or_none_is_named(home, content: bytes | None) -> None:
    path = home / "audit" / "head" / "checkpoint"
    path.unlink() if content is None else path.write_bytes(content)
    (line,) = findings(home)
    assert line.startswith(f"head: {path} is")


def test_a_missing_private_key_and_a_public_one_of_another_pair_are_named(home) -> None:
    (home / "keys" / "log.key").rename(home / "kept")
    assert findings(home) == [f"log key: {home / 'keys' / 'log.key'} is missing"]
    (home / "kept").rename(home / "keys" / "log.key")
    subprocess.run(
        ["openssl", "genpkey", "-algorithm", "ed25519", "-out", home / "other"], check=True, capture_output=True
    )
    public = ["openssl", "pkey", "-in", home / "other", "-pubout", "-out", home / "keys" / "log.pub"]
    subprocess.run(public, check=True, capture_output=True)
    assert "log.pub is not the public half of log.key" in findings(home)[0]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("tile/0/001", "hash 3 is not the log's"),
        ("tile/0/002.p/88", "hash 3 is not the log's"),
        ("tile/entries/001", "its records are not those of the log"),
        ("tile/1/000.p/2", "hash 1 is not the log's"),
    ],
)
def test_a_changed_tile_is_named(home, path: str, words: str) -> None:
    tile = home / "audit" / "tiles" / path
    data = bytearray(tile.read_bytes())
    data[min(100, len(data) - 1)] ^= 1
    tile.write_bytes(data)
    assert findings(home) == [f"tile: {tile}: {words}"]
    tile.unlink()
    assert findings(home) == [f"tile: {path} is missing"]


def test_a_published_checkpoint_that_is_ahead_of_the_store_is_named(filled, home, tmp_path) -> None:
    audit = AuditProcess(home)

    async def grow() -> None:
        async with audit.stub() as stub:
            await append(stub, [[item("late")]])

    asyncio.run(grow())
    assert audit.stop() == 0
    for part in ("store", "head"):
        shutil.rmtree(home / "audit" / part)
        shutil.copytree(filled / "audit" / part, home / "audit" / part)
    (line,) = findings(home)
    assert f"covers {COUNT + 1} records, the store has {COUNT}: the log was set back" in line


def test_the_command_says_what_is_wrong_where_and_how_to_restore_it(home) -> None:
    change(home, "leaf", place(7), None)
    done = run(home)
    assert done.returncode == 4
    assert done.stdout.splitlines()[:2] == ["leaf: record 7: missing", f"    {BACKUP}"]
    assert json.loads(run(home, "--json").stdout)["findings"][0]["what"] == "record 7: missing"


def test_a_running_log_is_refused(home) -> None:
    audit = AuditProcess(home)
    try:

        async def reach() -> None:
            async with audit.stub():
                pass

        asyncio.run(reach())
        done = run(home)
        assert done.returncode == 3
        assert f"in use by process {audit.process.pid}" in done.stderr
    finally:
        audit.kill()


def test_a_folder_without_a_log_is_refused(tmp_path) -> None:
    done = run(tmp_path)
    assert (done.returncode, list(tmp_path.iterdir())) == (3, [])
    assert "there is no log in" in done.stderr

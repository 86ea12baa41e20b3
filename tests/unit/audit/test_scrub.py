"""The background scrub: it meets each damage, names it, rewrites only tiles that the store proves, and keeps its place."""

import json
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from affidavit.libs.evidence.note import Verifier
from affidavit.libs.evidence.scrubstate import FILE, ScrubState
from affidavit.libs.evidence.tiles import TileReader, folder_tiles
from affidavit.services.audit.append_stream import entry_of
from affidavit.services.audit.log import EvidenceLog
from affidavit.services.audit.opening import LogFolders
from affidavit.services.audit.publishing import Published
from affidavit.services.audit.scrub import STEP_RECORDS, Scrub
from affidavit.services.audit.store import Store
from affidavit.services.audit.tilescrub import TileScrub
from tests.contract.audit_process import AuditProcess, item

COUNT = 600


@dataclass
class Opened:
    """A log of COUNT records, published, and a way to scrub it."""

    home: Path
    log: EvidenceLog
    published: Published

    @property
    def place(self) -> Path:
        return self.home / "audit" / FILE

    def scrub(self) -> Scrub:
        return Scrub(self.log, TileScrub(self.log, self.published), self.place)

    def whole_pass(self) -> ScrubState:
        scrub = self.scrub()
        for _ in range(COUNT // STEP_RECORDS + 1):
            scrub.step()
            if not scrub.state.next:
                return scrub.state
        raise AssertionError("the pass did not end")

    def damage(self, family: str, key: bytes, value: bytes) -> None:
        """Put other bytes where the store has a record's, as a flipped bit that no checksum saw."""
        store: Store = self.log._open.store  # pyright: ignore[reportPrivateUsage]
        store.put(family, [(key, value)])

    def reads_whole(self) -> int:
        reader = TileReader(folder_tiles(self.home / "audit" / "tiles"))
        verifier = Verifier(self.log.head.tree.origin, AuditProcess.key_of(self.home))
        return len(list(reader.leaves(reader.head([verifier]))))


@pytest.fixture
def opened(tmp_path):
    home = tmp_path / "home"
    log = EvidenceLog(LogFolders.below(home))
    log.append([entry_of(item(f"r-{number}")) for number in range(COUNT)])
    published = Published(log, home / "audit" / "tiles")
    published.publish(log.head)
    yield Opened(home, log, published)
    log.close()


def test_a_whole_log_has_no_findings_and_the_pass_is_remembered(opened) -> None:
    before = time.time()
    state = opened.whole_pass()
    assert (state.last_records, state.count) == (COUNT, 0)
    assert state.last_end >= before
    assert ScrubState.load(opened.place) == state
    assert json.loads(opened.place.read_bytes())["v"] == 1


@pytest.mark.parametrize(
    ("family", "key", "value", "part", "named"),
    [
        ("leaf", (300).to_bytes(8, "big"), b"{}", "leaf", "record 300: its bytes"),
        ("node", b"\0" + (300).to_bytes(8, "big"), bytes(32), "leaf", "record 300: its bytes"),
        ("node", b"\2" + (75).to_bytes(8, "big"), bytes(32), "hash", "records 300 to 303"),
        ("node", b"\1" + (5).to_bytes(8, "big"), b"short", "store", "no hash for records 10 to 11"),
    ],
    ids=["a leaf", "its hash", "a subtree", "a hash of another length"],
)
def test_each_damage_is_found_and_named_and_appending_goes_on(opened, family, key, value, part, named) -> None:
    assert opened.whole_pass().count == 0
    opened.damage(family, key, value)
    state = opened.whole_pass()
    assert state.last_findings[0].part == part
    assert named in state.last_findings[0].what
    assert "affidavit audit restore" in state.last_findings[0].restore
    assert "affidavit audit repair" in state.last_findings[0].restore
    (answer,) = opened.log.append([entry_of(item("after"))])
    assert answer.index == COUNT


def test_findings_are_known_after_a_restart_until_a_pass_finds_nothing(opened) -> None:
    leaf = opened.log.leaf(7)
    opened.damage("leaf", (7).to_bytes(8, "big"), b"{}")
    assert opened.whole_pass().count == 1
    again = opened.scrub()
    assert again.state.count == 1
    opened.damage("leaf", (7).to_bytes(8, "big"), leaf)
    assert opened.whole_pass().count == 0


def test_the_place_is_kept_across_restarts_and_not_taken_from_another_log(opened) -> None:
    scrub = opened.scrub()
    assert scrub.step() == STEP_RECORDS
    scrub.save()
    assert opened.scrub().state.next == STEP_RECORDS
    opened.place.write_text(opened.place.read_text().replace(opened.log.head.tree.origin, "affidavit.local/other"))
    assert opened.scrub().state.next == 0
    opened.place.write_bytes(b"no JSON")
    assert opened.scrub().state.next == 0


@pytest.mark.parametrize(
    "name", ["tile/0/000", "tile/entries/001", "tile/0/002.p/88", "tile/entries/002.p/88", "tile/1/000.p/2"]
)
@pytest.mark.parametrize("lost", [True, False], ids=["missing", "changed"])
def test_a_tile_that_is_not_the_stores_is_written_again(opened, name: str, lost: bool) -> None:
    path = opened.home / "audit" / "tiles" / name
    whole = path.read_bytes()
    assert opened.reads_whole() == COUNT
    path.unlink() if lost else path.write_bytes(bytes(len(whole)))
    assert opened.whole_pass().count == 0
    assert path.read_bytes() == whole
    assert opened.reads_whole() == COUNT


def test_a_tile_is_never_overwritten_from_a_damaged_store(opened) -> None:
    path = opened.home / "audit" / "tiles" / "tile" / "entries" / "001"
    whole = path.read_bytes()
    leaf = opened.log.leaf(300)
    other = leaf.replace(b'"ok"', b'"no"')
    assert other != leaf
    opened.damage("leaf", (300).to_bytes(8, "big"), other)
    assert opened.whole_pass().count == 1
    assert path.read_bytes() == whole

"""The spool keeps what it acknowledged, in order, and notices what was changed."""

from pathlib import Path

import pytest

from affidavit.audit.v1 import audit_pb2
from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.errors import AffidavitError
from affidavit.services.ingress.spool import NAME, PROVISIONAL, Spool, resolved

ROOM = 1 << 20


def item(name: str) -> audit_pb2.AppendItem:
    draft = evidence_pb2.RecordDraft(tenant="default", request_id=name, status="ok")
    return audit_pb2.AppendItem(step="closed", content_digest=bytes(32), salt=b"s" * 32, draft=draft)


def names(spool: Spool, skip: int = 0) -> list[tuple[int, str]]:
    return [(entry.sequence, entry.draft.request_id) for entry in spool.entries(skip)]


def filled(folder: Path) -> Path:
    spool = Spool(folder, ROOM)
    spool.append([item("a"), item("b")])
    spool.append([item("c")])
    spool.close()
    return folder / NAME


def test_another_life_finds_every_record_in_order(tmp_path: Path) -> None:
    filled(tmp_path)
    spool = Spool(tmp_path, ROOM)
    assert spool.count == 3
    assert names(spool) == [(0, "a"), (1, "b"), (2, "c")]
    assert names(spool, 2) == [(2, "c")]
    spool.append([item("d")])
    assert names(spool)[-1] == (3, "d")


def test_numbers_go_on_after_the_spool_was_emptied_also_in_another_life(tmp_path: Path) -> None:
    filled(tmp_path)
    spool = Spool(tmp_path, ROOM)
    spool.clear()
    assert spool.count == 0
    assert [entry.number for entry in spool.append([item("d"), item("e")])] == [3, 4]
    spool.close()
    again = Spool(tmp_path, ROOM)
    assert (again.first, again.count) == (3, 2)
    assert names(again) == [(3, "d"), (4, "e")]


def test_a_torn_last_line_was_acknowledged_to_nobody_and_is_dropped(tmp_path: Path) -> None:
    path = filled(tmp_path)
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for end in range(last + 1, len(whole), 37):
        path.write_bytes(whole[:end])
        spool = Spool(tmp_path, ROOM)
        assert names(spool) == [(0, "a"), (1, "b")]
        spool.append([item("new")])
        assert names(spool)[2] == (2, "new")
        spool.close()


def test_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = filled(tmp_path)
    whole = path.read_bytes()
    Spool(tmp_path, ROOM).close()
    end_of_second = whole.rindex(b"\n", 0, -1)
    for at in range(0, end_of_second, 11):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(AffidavitError) as caught:
            Spool(tmp_path, ROOM)
        assert caught.value.reason == "LOG_DAMAGED"
    path.write_bytes(whole)
    assert Spool(tmp_path, ROOM).count == 3


@pytest.mark.parametrize(
    "order", [(0, 2), (1, 0, 2), (0, 1, 1, 2), (1, 2)], ids=["gone", "moved", "twice", "first gone"]
)
def test_lines_that_are_gone_moved_or_doubled_are_noticed(tmp_path: Path, order: tuple[int, ...]) -> None:
    path = filled(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[i] for i in order))
    with pytest.raises(AffidavitError, match="was changed at line") as caught:
        Spool(tmp_path, ROOM)
    assert caught.value.reason == "LOG_DAMAGED"


def test_a_full_spool_refuses_and_keeps_what_it_has(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1 << 10)
    spool.append([item("a")])
    with pytest.raises(AffidavitError) as caught:
        spool.append([item(str(n)) for n in range(10)])
    assert caught.value.reason == "STORAGE_FULL"
    assert names(spool) == [(0, "a")]
    spool.append([item("b")])
    assert names(spool) == [(0, "a"), (1, "b")]


def test_one_process_at_a_time_has_the_spool(tmp_path: Path) -> None:
    first = Spool(tmp_path, ROOM)
    with pytest.raises(AffidavitError, match="in use by another process"):
        Spool(tmp_path, ROOM)
    first.close()
    Spool(tmp_path, ROOM).close()


def test_provisional_numbers_become_indices() -> None:
    draft = evidence_pb2.RecordDraft(parent_index=PROVISIONAL + 4, environment_index=7)
    draft.children.add(first=3, last=3)
    draft.children.add(first=PROVISIONAL + 5, last=PROVISIONAL + 7)
    real = resolved(draft, {4: 100, 5: 101, 6: 102, 7: 200})
    assert (real.parent_index, real.environment_index) == (100, 7)
    assert [(c.first, c.last) for c in real.children] == [(3, 3), (101, 102), (200, 200)]
    with pytest.raises(AffidavitError, match="not in the log yet"):
        resolved(draft, {4: 100})
    partly = resolved(draft, {4: 100, 6: 102}, all_known=False)
    assert partly.parent_index == 100
    assert [(c.first, c.last) for c in partly.children] == [
        (3, 3),
        (102, 102),
        (PROVISIONAL + 5, PROVISIONAL + 5),
        (PROVISIONAL + 7, PROVISIONAL + 7),
    ]

"""An export proves every record of its span: whatever is dropped, changed, moved, doubled or cut does not verify."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.export import ExportError, Header, VerifiedExport, verify_export
from affidavit.libs.evidence.note import TreeHead, sign_note
from affidavit.libs.evidence.rangeproof import outer_siblings
from affidavit.libs.evidence.record import leaf_bytes

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
START = datetime(2026, 11, 30, 12, tzinfo=UTC)
SIZE = 23


def moment(index: int) -> datetime:
    """Two records share each second."""
    return START + timedelta(seconds=index // 2)


class Log:
    def __init__(self, size: int = SIZE, moment: Callable[[int], datetime] = moment) -> None:
        draft = evidence_pb2.RecordDraft(tenant="a", request_id="r", kind=2, phase=1)
        self.leaves = [leaf_bytes(draft, index, moment(index), bytes(32)) for index in range(size)]
        self.nodes: dict[tuple[int, int], bytes] = {}
        frontier = merkle.Frontier()
        for leaf in self.leaves:
            for level, index, digest in frontier.append(merkle.leaf_hash(leaf)):
                self.nodes[level, index] = digest
        self.size = size
        self.note = sign_note(TreeHead("log.example", size, frontier.root()).text(), "log.example", KEY)

    def path(self, index: int) -> list[bytes]:
        return merkle.prove_inclusion(index, self.size, lambda level, place: self.nodes[level, place])

    def lines(self, first: int, last: int, since: datetime | None, until: datetime | None) -> list[bytes]:
        """An export of leaves `first` to `last`, whatever it then claims."""
        before, after = outer_siblings(first, last, self.size, self.path(first), self.path(last))
        header = Header(since, until, first, last, tuple(before), tuple(after), self.note)
        return [header.line(), *(leaf + b"\n" for leaf in self.leaves[first : last + 1])]

    def export(self, since: datetime | None, until: datetime | None) -> list[bytes]:
        inside = [
            index
            for index in range(self.size)
            if (not since or moment(index) >= since) and (not until or moment(index) < until)
        ]
        assert inside
        return self.lines(max(0, inside[0] - 1), min(self.size - 1, inside[-1] + 1), since, until)


LOG = Log()
SINCE, UNTIL = moment(6), moment(14)  # records 6 to 13, neighbours 5 and 14


def check(lines: Sequence[bytes]) -> VerifiedExport:
    return verify_export(lines, KEY.public_key())


def refused(lines: Sequence[bytes]) -> str:
    with pytest.raises(ExportError) as caught:
        check(lines)
    return str(caught.value)


def test_every_run_of_leaves_of_every_small_tree_is_proved() -> None:
    checked = 0
    for size in range(1, 12):
        log = Log(size)
        for first in range(size):
            for last in range(first, size):
                # Of a span that its neighbours bound: what lies before `first` and after `last` may not be there.
                lines = log.lines(first, last, None, None)
                if (first, last) == (0, size - 1):
                    assert check(lines).records == size
                else:
                    assert "the span" in refused(lines)  # the leaves are proved, the ends are not
                checked += 1
    assert checked == 286


def test_a_span_with_both_neighbours_is_closed_and_says_what_it_holds() -> None:
    verified = check(LOG.export(SINCE, UNTIL))
    assert (verified.records, verified.first, verified.last, verified.closed) == (8, 6, 13, True)
    assert verified.head.size == SIZE


@pytest.mark.parametrize(
    ("since", "until", "records", "closed"),
    [(None, None, 23, False), (None, UNTIL, 14, True), (SINCE, None, 17, False), (moment(22), moment(99), 1, False)],
)
def test_a_span_at_the_logs_ends_is_open_only_where_the_log_ends(since, until, records, closed) -> None:
    verified = check(LOG.export(since, until))
    assert (verified.records, verified.closed) == (records, closed)


def test_a_span_without_records_is_proved_by_its_neighbours() -> None:
    instant = moment(6) + timedelta(milliseconds=1)
    verified = check(LOG.lines(7, 8, instant, moment(8)))
    assert (verified.records, verified.first, verified.closed) == (0, None, True)


def test_a_record_that_is_dropped_doubled_or_moved_is_named() -> None:
    good = LOG.export(SINCE, UNTIL)
    check(good)
    for line in range(1, len(good)):
        assert "record" in refused(good[:line] + good[line + 1 :])
        assert "record" in refused(good[: line + 1] + good[line:])
        if line + 1 < len(good):
            assert "belongs" in refused([*good[:line], good[line + 1], good[line], *good[line + 2 :]])
        assert "ends before" in refused(good[:line])  # cut


def test_a_changed_bit_anywhere_is_found() -> None:
    good = LOG.export(SINCE, UNTIL)
    check(good)
    whole = b"".join(good)
    tried = 0
    for place in range(0, len(whole), 3):
        changed = bytearray(whole)
        changed[place] ^= 1
        refused(bytes(changed).splitlines(keepends=True))
        tried += 1
    assert tried > 1000


def test_a_record_put_in_the_place_of_another_with_its_index_is_found() -> None:
    good = LOG.export(SINCE, UNTIL)
    forged = [line.replace(b'"tenant":"a"', b'"tenant":"b"') for line in good]
    for line in range(1, len(good)):
        assert "not leaves 5 to 14" in refused([*good[:line], forged[line], *good[line + 1 :]])


def test_an_end_that_is_cut_and_proved_anew_is_found() -> None:
    for first, last in ((5, 13), (6, 14), (6, 13), (5, 12), (7, 14), (4, 14), (5, 15)):
        message = refused(LOG.lines(first, last, SINCE, UNTIL))
        assert "the span is missing, or there is more" in message


def test_a_span_that_claims_other_times_is_found() -> None:
    refused([LOG.lines(5, 14, SINCE - timedelta(seconds=1), UNTIL)[0], *LOG.export(SINCE, UNTIL)[1:]])
    refused([LOG.lines(5, 14, SINCE, UNTIL + timedelta(seconds=1))[0], *LOG.export(SINCE, UNTIL)[1:]])


def test_another_key_or_no_export_is_refused() -> None:
    good = LOG.export(SINCE, UNTIL)
    with pytest.raises(ExportError, match="not signed"):
        verify_export(good, Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key())
    assert "no header" in refused([])
    assert "no header" in refused(good[1:])
    assert "cut" in refused([*good[:-1], good[-1].rstrip()])


def test_a_log_whose_times_go_back_proves_no_span() -> None:
    back = Log(5, lambda index: moment(10) if index == 2 else moment(2 * index))
    assert "record 3 is stamped before" in refused(back.lines(0, 4, None, None))


def test_a_header_has_one_form_and_just_the_siblings_of_its_place() -> None:
    header, *leaves = LOG.export(SINCE, UNTIL)
    upper = header.replace(b'"before":["', b'"before":["  ')  # Python would read past the spaces
    assert upper != header
    assert "one form" in refused([upper, *leaves])
    said = Header.parse(header)
    for after in ((*said.after, bytes(32)), said.after[:-1]):
        assert "number of siblings" in refused([replace(said, after=after).line(), *leaves])
    for before in ((bytes(32), *said.before), said.before[1:]):
        assert "peaks" in refused([replace(said, before=before).line(), *leaves])

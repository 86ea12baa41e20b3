"""A segment of an archived log: what is not exactly what the log signed is refused, also when every hash was made to fit."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.note import TreeHead, Verifier, sign_checkpoint
from affidavit.libs.evidence.rangeproof import outer_siblings
from affidavit.libs.evidence.record import leaf_bytes
from affidavit.libs.evidence.segment import Manifest, NamedFile, Part, SegmentError, check_segment, entries_bytes

KEY = Ed25519PrivateKey.generate()
ORIGIN = "affidavit.local/test"
VERIFIERS = [Verifier(ORIGIN, KEY.public_key())]
BEGIN = datetime(2026, 11, 30, 12, tzinfo=UTC)
SIZE, FIRST, LAST = 23, 5, 12


def leaf(index: int) -> bytes:
    draft = evidence_pb2.RecordDraft(
        tenant="default",
        request_id=f"r-{index}",
        kind=evidence_pb2.RECORD_KIND_PAGE,
        phase=evidence_pb2.RECORD_PHASE_SINGLE,
        input_commitment=bytes(32),
        output_commitment=bytes(32),
        status="ok",
    )
    return leaf_bytes(draft, index, BEGIN + timedelta(seconds=index), bytes(32))


LEAVES = [leaf(index) for index in range(SIZE)]


def nodes(leaves: list[bytes]) -> dict[tuple[int, int], bytes]:
    frontier, found = merkle.Frontier(), {}
    for data in leaves:
        found |= {(level, index): digest for level, index, digest in frontier.append(merkle.leaf_hash(data))}
    return found


def node(level: int, index: int) -> bytes:
    return nodes(LEAVES)[level, index]


def sealed(leaves: list[bytes], note: bytes, **fields) -> tuple[Manifest, bytes, bytes]:
    """A segment of `leaves`, every hash of its manifest as it should be."""
    paths = [merkle.prove_inclusion(index, SIZE, node) for index in (FIRST, LAST)]
    before, after = outer_siblings(FIRST, LAST, SIZE, *paths)
    entries = entries_bytes(leaves)
    manifest = Manifest(
        origin=ORIGIN,
        first=FIRST,
        last=LAST,
        previous=bytes(32),
        newest_time=BEGIN + timedelta(seconds=LAST),
        retain_until=BEGIN + timedelta(days=180),
        tree_size=SIZE,
        before=tuple(before),
        after=tuple(after),
        entries=Part.of(entries),
        checkpoint=Part.of(note),
        files=(NamedFile("keys/log.pub", bytes(32)),),
        missing=("bundle document@1: not here",),
    )
    return replace(manifest, **fields), entries, note


NOTE = sign_checkpoint(TreeHead(ORIGIN, SIZE, merkle.root(SIZE, node)), KEY)
RUN = LEAVES[FIRST : LAST + 1]


def test_a_segment_gives_its_leaves_and_the_tree_after_them() -> None:
    leaves, frontier = check_segment(*sealed(RUN, NOTE), VERIFIERS)
    assert leaves == RUN
    assert (frontier.size, frontier.root()) == (LAST + 1, merkle.root(LAST + 1, node))


def test_a_manifest_has_one_form_and_comes_back_as_it_was() -> None:
    manifest, _, _ = sealed(RUN, NOTE)
    data = manifest.to_bytes()
    assert Manifest.parse(data) == manifest
    for changed in (data + b"\n", data.replace(b",", b", ", 1), data.replace(b'"v":1', b'"v":2'), data[:-1]):
        with pytest.raises(SegmentError, match="no manifest of a segment"):
            Manifest.parse(changed)


CHANGED_LEAF = RUN[3].replace(b'"ok"', b'"no"', 1).replace(b'"r-8"', b'"r-9"', 1)


@pytest.mark.parametrize(
    ("forged", "message"),
    [
        (sealed([*RUN[:3], CHANGED_LEAF, *RUN[4:]], NOTE), "cannot be read|are not what was signed"),
        (sealed([*RUN[:3], RUN[3].replace(b'"r-8"', b'"r-9"'), *RUN[4:]], NOTE), "are not what was signed"),
        (sealed(RUN[:-1], NOTE), "it has 7 records, its name says 8"),
        (sealed(RUN[:-1], NOTE, last=LAST - 1, newest_time=BEGIN + timedelta(seconds=LAST - 1)), "not what was signed"),
        (sealed([*RUN[:2], RUN[3], RUN[2], *RUN[4:]], NOTE), "at place 7 is record 8"),
        (sealed([*RUN, LEAVES[LAST + 1]], NOTE), "it has 9 records"),
        (sealed(RUN, NOTE, newest_time=BEGIN), "newest_time is not its last record's"),
        (sealed(RUN, NOTE, tree_size=SIZE - 1), "its checkpoint is of 23 records"),
        (
            sealed(RUN, NOTE, origin="affidavit.local/other"),
            "its checkpoint is of 23 records of log affidavit.local/test",
        ),
        (sealed(RUN, NOTE, before=(bytes(32), bytes(32))), "not what was signed"),
        (sealed(RUN, NOTE, before=()), "not what was signed"),
        (sealed(RUN, NOTE, after=(bytes(32),)), "not what was signed"),
        (sealed(RUN, sign_checkpoint(TreeHead(ORIGIN, SIZE, bytes(32)), KEY)), "not what was signed"),
        (sealed(RUN, sign_checkpoint(TreeHead(ORIGIN, SIZE, bytes(32)), Ed25519PrivateKey.generate())), "no known key"),
    ],
    ids=range(14),
)
def test_what_was_not_signed_is_refused_though_every_hash_fits(forged, message) -> None:
    check_segment(*sealed(RUN, NOTE), VERIFIERS)
    with pytest.raises(SegmentError, match=message):
        check_segment(*forged, VERIFIERS)


def test_an_object_that_is_not_the_manifests_is_refused() -> None:
    manifest, entries, note = sealed(RUN, NOTE)
    for wrong in ((entries + b"x", note), (entries[:-1], note), (entries, note[:-1] + b" "), (b"", note)):
        with pytest.raises(SegmentError, match="is not what its manifest says"):
            check_segment(manifest, *wrong, VERIFIERS)

"""Leaves that come without idempotency keys get keys that no caller can send, so that they are found by their request."""

from collections.abc import Iterator

from affidavit.libs.evidence.record import parse_leaf
from affidavit.libs.evidence.tiles import TileError
from affidavit.services.audit.backup import batches
from affidavit.services.audit.store import Store, record_key

_STEP = "\x01{index}"


def keyed(leaves: Iterator[tuple[bytes, bytes]], copy: Store) -> Iterator[tuple[bytes, bytes]]:
    """Give the leaves on, each once its key is put."""
    for batch in batches(leaves):
        keys: list[tuple[bytes, bytes]] = []
        for place, leaf in batch:
            try:
                record = parse_leaf(leaf)
            except ValueError as error:
                raise TileError(f"record {int.from_bytes(place, 'big')} cannot be read: {error}") from None
            keys.append((record_key(record.tenant, record.request_id, _STEP.format(index=record.index)), place))
        copy.put("key", keys)
        yield from batch

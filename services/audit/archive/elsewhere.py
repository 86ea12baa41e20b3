"""Reading a leaf that was released: from its segment in the archive, and believed only by its hash."""

from collections.abc import Callable
from functools import lru_cache

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.segment import ENTRIES, segment_folder
from affidavit.libs.evidence.tiles import parse_bundle
from affidavit.services.audit.archive.ledger import Archived, Ledger
from affidavit.services.audit.archive.objects import ObjectStore, find
from affidavit.services.audit.store import Store

# The leaf of a record of a released segment. Raises AffidavitError: SERVICE_UNAVAILABLE, HASH_MISMATCH.
Elsewhere = Callable[[Archived, int], bytes]
_CACHED = 8  # segments of at most 8 MiB


def nowhere(segment: Archived, index: int) -> bytes:
    """Where no archive is known."""
    message = f"record {index} was released to the archive, and no archive is named here; set archive (docs/archive.md)"
    raise AffidavitError("SERVICE_UNAVAILABLE", message)


def from_archive(objects: Callable[[], ObjectStore]) -> Elsewhere:
    """Read from `objects`, opened when first needed; the last segments that were read stay in memory."""

    @lru_cache(maxsize=1)
    def opened() -> ObjectStore:
        return objects()

    @lru_cache(maxsize=_CACHED)
    def leaves(first: int, last: int, entries: bytes) -> list[bytes]:
        key = segment_folder(first, last) + ENTRIES
        found = find(opened(), key, entries)
        if found is None:
            message = (
                f"records {first} to {last} were released, and the archive {opened().place} does not have them as they "
                "were read back; name the archive that has them, or put its objects back; affidavit audit archive verify"
            )
            raise AffidavitError("HASH_MISMATCH", message)
        return parse_bundle(found.kept.data)

    def leaf(segment: Archived, index: int) -> bytes:
        try:
            return leaves(segment.first, segment.last, segment.entries)[index - segment.first]
        except AffidavitError as error:
            raise AffidavitError(error.reason, f"record {index} is in the archive alone: {error.message}") from None

    return leaf


def leaf_reader(store: Store, elsewhere: Elsewhere) -> Callable[[int], bytes | None]:
    """Reads leaves of a store, released ones from `elsewhere`; None for one that is in neither."""
    ledger = Ledger(store)

    def leaf(index: int) -> bytes | None:
        found = store.leaf(index)
        if found is None and (segment := ledger.released(index)):
            return elsewhere(segment, index)
        return found

    return leaf

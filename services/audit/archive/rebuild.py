"""The store again from the archive, where store and tiles are gone: every segment read back, every leaf proved.

The head becomes the newest archived checkpoint that covers no more than what is there; records after it were proved by
a later one, and the next start keeps and signs them. As with tiles, salts and the steps of idempotency keys do not come
back (`repair.py`).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.merkle import Frontier
from affidavit.libs.evidence.note import NoteError, TreeHead, Verifier, open_checkpoint
from affidavit.libs.evidence.segment import CHECKPOINT, Manifest
from affidavit.services.audit.archive.objects import ObjectStore, read_back
from affidavit.services.audit.archive.places import log_verifiers
from affidavit.services.audit.archive.segments import read_whole
from affidavit.services.audit.archive.verify import list_archive
from affidavit.services.audit.backup import grow
from affidavit.services.audit.head import HeadFile, SignedHead
from affidavit.services.audit.keyed import keyed
from affidavit.services.audit.offline import Here, Progress
from affidavit.services.audit.store import Store, StoredTree, create_store


def rebuild(here: Here, building: Path, progress: Progress) -> SignedHead:
    """Build the store at `building`; the head that belongs to it.

    Raises:
        AffidavitError: LOG_UNAVAILABLE: the archive has nothing to begin with. LOG_DAMAGED: it is not this log's, or ends
            before the signed head that is here. HASH_MISMATCH: it is damaged. SERVICE_UNAVAILABLE. STORAGE_FULL.
    """
    objects = here.archive()
    objects.check()
    manifests = [listed.manifest for listed in list_archive(objects)]
    if not manifests or manifests[0].first:
        raise AffidavitError(
            "LOG_UNAVAILABLE", f"the archive {objects.place} does not begin with the log's first record"
        )
    origin, size = manifests[0].origin, manifests[-1].last + 1
    verifiers = log_verifiers(here.folders.keys, origin)
    head = _head(objects, manifests, verifiers)
    tree = TreeHead(origin, size, read_whole(objects, manifests[-1], verifiers).frontier.root())
    create_store(building, origin)
    copy = Store(building)
    try:
        leaves = ((index.to_bytes(8, "big"), leaf) for index, leaf in enumerate(_leaves(objects, manifests, verifiers)))
        if grow(copy, keyed(leaves, copy), tree, progress) != size:
            raise AffidavitError(
                "LOG_DAMAGED", f"the archive {objects.place} has a gap; affidavit audit archive verify"
            )
        copy.settle(StoredTree(size, tree.root))
        for signed in (head.tree, _signed_here(here, verifiers)):
            _check_covered(signed, copy, size, objects)
    finally:
        copy.close()
    return head


def _leaves(objects: ObjectStore, manifests: Sequence[Manifest], verifiers: Sequence[Verifier]) -> Iterator[bytes]:
    frontier = Frontier()
    for manifest in manifests:
        if (manifest.first, manifest.before) != (frontier.size, tuple(frontier.peaks)):
            message = f"the archive {objects.place}: {manifest.folder} does not go on where the one before ends"
            raise AffidavitError("LOG_DAMAGED", f"{message}; affidavit audit archive verify")
        whole = read_whole(objects, manifest, verifiers)
        frontier = whole.frontier
        yield from whole.leaves


def _head(objects: ObjectStore, manifests: Sequence[Manifest], verifiers: Sequence[Verifier]) -> SignedHead:
    size = manifests[-1].last + 1
    fitting = [manifest for manifest in manifests if manifest.tree_size <= size]
    if not fitting:
        message = f"the archive {objects.place} was cut short in its first pass: it has no checkpoint of what it has"
        raise AffidavitError("LOG_UNAVAILABLE", f"{message}; repair from tiles, or restore a backup")
    newest = max(fitting, key=lambda manifest: manifest.tree_size)
    key = newest.folder + CHECKPOINT
    note = read_back(objects, key, newest.checkpoint.sha256, newest.retain_until).kept.data
    try:
        return SignedHead(open_checkpoint(note, verifiers), note)
    except NoteError as error:
        raise AffidavitError("LOG_DAMAGED", f"{objects.place}: {key} is not this log's: {error}") from None


def _signed_here(here: Here, verifiers: Sequence[Verifier]) -> TreeHead | None:
    note = HeadFile(here.folders.head).read()
    try:
        return open_checkpoint(note, verifiers) if note else None
    except NoteError as error:
        raise AffidavitError("LOG_DAMAGED", f"the signed head that is here is of another log: {error}") from None


def _check_covered(signed: TreeHead | None, copy: Store, size: int, objects: ObjectStore) -> None:
    if signed is None:
        return
    if signed.size > size:
        message = f"the archive {objects.place} ends after {size} records, the signed head covers {signed.size}"
        raise AffidavitError("LOG_DAMAGED", f"{message}: records {size} to {signed.size - 1} are not there")
    if merkle.root(signed.size, copy.node) != signed.root:
        message = f"the first {signed.size} records of the archive {objects.place} are not those that the head signed"
        raise AffidavitError("LOG_DAMAGED", message)

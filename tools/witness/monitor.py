"""What a monitor remembers of a log, and what it takes for an alarm."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.durablefile import make_folder, replace_file
from affidavit.libs.evidence.epoch import epoch_of
from affidavit.libs.evidence.note import NoteError, TreeHead, Verifier, open_checkpoint

Prover = Callable[[int, int], Awaitable[Sequence[bytes]]]  # (first size, second size) to a consistency proof


class NotAppendOnly(Exception):
    """The log is not what it was; the message says how. Both signed checkpoints are kept as evidence."""


class Monitor:
    """Follows one log: `newest` holds the newest checkpoint that continued all before it, `alarm` one that did not."""

    def __init__(self, folder: Path, log: Verifier, *later: Verifier) -> None:
        """Args: log, later: the log's keys, all under its one name; more than one where it was rotated."""
        make_folder(folder, 0o700)
        self._newest = folder / "newest"
        self._alarm = folder / "alarm"
        self._log = log
        self._keys = (log, *later)

    @property
    def newest(self) -> TreeHead | None:
        """What is remembered. Raises NoteError when the file was damaged."""
        try:
            return open_checkpoint(self._newest.read_bytes(), self._keys)
        except FileNotFoundError:
            return None

    async def see(self, note: bytes, prove: Prover) -> TreeHead:
        """Judge the log's newest checkpoint and remember it.

        Raises:
            NotAppendOnly: it is not the log's, is older than what was seen, has another past, or has no proof.
        """
        before = self.newest
        try:
            head = open_checkpoint(note, self._keys)
            if head.origin != self._log.name:
                raise NoteError(f"it is of log {head.origin}")
            epoch_of(head)
        except NoteError as error:
            raise self._raised(note, f"the checkpoint is not {self._log.name}'s: {error}") from None
        if before is not None:
            await self._compare(before, head, note, prove)
        if head != before:
            replace_file(self._newest, note)
        return head

    async def _compare(self, before: TreeHead, head: TreeHead, note: bytes, prove: Prover) -> None:
        if epoch_of(head) < epoch_of(before):
            raise self._raised(note, f"the log went back from epoch {epoch_of(before)} to {epoch_of(head)}")
        if head.size < before.size:
            lost = before.size - head.size
            raise self._raised(note, f"the log went back from {before.size} to {head.size} records: {lost} are gone")
        if head.size == before.size:
            if head.root != before.root:
                raise self._raised(note, f"the log has two trees of {head.size} records: its past was changed")
            return
        if before.size == 0:
            return
        try:
            proof = await prove(before.size, head.size)
            merkle.verify_consistency(before.size, head.size, before.root, head.root, proof)
        except merkle.ProofError as error:
            message = f"the tree of {head.size} records does not continue that of {before.size}: {error}"
            raise self._raised(note, message) from None

    def _raised(self, note: bytes, message: str) -> NotAppendOnly:
        replace_file(self._alarm, note)
        return NotAppendOnly(f"{message}; evidence: {self._newest} and {self._alarm}")

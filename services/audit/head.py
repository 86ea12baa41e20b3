"""The signed head: the newest checkpoint, outside the store, so that a store that lost records cannot pass as whole.

It is written after the store's sync and before the acknowledgement: after any crash the store has at least what the
head signed, and everything acknowledged is under the head.

The file has two slots of fixed size, written in turn where they are: no rename, no folder to sync, no space to find. A
slot is a line `affidavit-head v1 COUNT LENGTH SHA256`, the note, zeroes; its hash covers the count and the note. A crash
while one is written leaves the other, which is what had been acknowledged. The newest whole slot counts; with none, the
file is damaged.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.durablefile import replace_file
from affidavit.libs.evidence.keys import Signer
from affidavit.libs.evidence.note import MAX_NOTE_BYTES, NoteError, TreeHead, open_own_checkpoint, sign_checkpoint

NAME = "checkpoint"
_MAGIC = b"affidavit-head v1 "
SLOT_BYTES = MAX_NOTE_BYTES + 4096  # whole pages; only those that a note fills are ever written again


@dataclass(frozen=True)
class SignedHead:
    """A tree head and the note that signs it."""

    tree: TreeHead
    note: bytes

    @classmethod
    def sign(cls, tree: TreeHead, key: Signer) -> "SignedHead":
        return cls(tree, sign_checkpoint(tree, key))


class HeadFile:
    """`checkpoint` in the head folder. One process writes; `replace` comes before the first `write`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._count = 0

    def read(self) -> bytes | None:
        """The newest whole note; None when there is no file. Also reads the older form, a note and nothing else.

        Raises:
            AffidavitError: LOG_DAMAGED: no slot is whole. LOG_UNAVAILABLE: the file cannot be read.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise AffidavitError("LOG_UNAVAILABLE", f"the signed head {self.path} cannot be read: {error}") from error
        if len(data) <= MAX_NOTE_BYTES and not data.startswith(_MAGIC):
            return data
        whole = dict(_slots(data))
        if not whole:
            message = (
                f"the signed head {self.path} has no whole slot; restore the head: without it no loss can be ruled out"
            )
            raise AffidavitError("LOG_DAMAGED", message)
        return whole[max(whole)]

    def replace(self, note: bytes) -> None:
        """Put a new file in the place of whatever is there, with `note` as its head, durably.

        Raises:
            OSError: the old file still stands, or the new one already does.
        """
        replace_file(self.path, _slot(1, note) + bytes(SLOT_BYTES))
        self._count = 1

    def write(self, head: SignedHead) -> None:
        """Make `head` the newest, durably: one write in place and one sync.

        Raises:
            OSError: the head before it still stands, or this one already does. Nothing may be written after it but by
                `replace`: what the kernel still shows of the file is then perhaps not on the disk.
        """
        if not self._count:
            raise RuntimeError("a head file is replaced before it is written to")
        # Opened by its name each time: a file that was taken away must not go on taking heads that no start will find.
        descriptor = os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW)
        try:
            count = self._count + 1
            view, place = memoryview(_slot(count, head.note).rstrip(b"\0")), (count - 1) % 2 * SLOT_BYTES
            while view:
                written = os.pwrite(descriptor, view, place)
                view, place = view[written:], place + written
            os.fdatasync(descriptor)
            self._count = count
        finally:
            os.close(descriptor)

    def open(self, note: bytes, key: Signer) -> SignedHead:
        """The head that `note` signs with the log's own key.

        Raises:
            AffidavitError: LOG_DAMAGED: it is no checkpoint, or of another log.
        """
        try:
            return SignedHead(open_own_checkpoint(note, key.public_key()), note)
        except NoteError as error:
            message = (
                f"the signed head {self.path} is not this log's: {error}; restore the head that belongs to the log"
            )
            raise AffidavitError("LOG_DAMAGED", message) from None


def _slot(count: int, note: bytes) -> bytes:
    if len(note) > MAX_NOTE_BYTES:
        raise ValueError(f"a note has at most {MAX_NOTE_BYTES} bytes, this one {len(note)}")
    header = b"%s%d %d %s\n" % (_MAGIC, count, len(note), _digest(count, note))
    return (header + note).ljust(SLOT_BYTES, b"\0")


def _slots(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(count, note) of each whole slot."""
    for begin in (0, SLOT_BYTES):
        slot = data[begin : begin + SLOT_BYTES]
        header, _, rest = slot.partition(b"\n")
        fields = header.removeprefix(_MAGIC).split(b" ")
        if not slot.startswith(_MAGIC) or len(fields) != 3 or not (fields[0].isdigit() and fields[1].isdigit()):
            continue
        count, note = int(fields[0]), rest[: int(fields[1])]
        if fields[2] == _digest(count, note):
            yield count, note


def _digest(count: int, note: bytes) -> bytes:
    return hashlib.sha256(b"%d\n%s" % (count, note)).hexdigest().encode()

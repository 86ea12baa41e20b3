"""The signed head: the newest checkpoint, outside the store, so that a store that lost records cannot pass as whole.

It is written after the store's sync and before the acknowledgement: after any crash the store has at least what the
head signed, and everything acknowledged is under the head.
"""

from dataclasses import dataclass
from pathlib import Path

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.durablefile import replace_file
from affidavit.libs.evidence.keys import Signer
from affidavit.libs.evidence.logkeys import LogKeys
from affidavit.libs.evidence.note import NoteError, TreeHead, sign_checkpoint

NAME = "checkpoint"


@dataclass(frozen=True)
class SignedHead:
    """A tree head and the note that signs it."""

    tree: TreeHead
    note: bytes

    @classmethod
    def sign(cls, tree: TreeHead, key: Signer) -> "SignedHead":
        return cls(tree, sign_checkpoint(tree, key))


class HeadFile:
    """`checkpoint` in the head folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME

    def read(self) -> bytes | None:
        """The note's bytes; None when there is no file."""
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def write(self, head: SignedHead) -> None:
        """Put `head` in the place of the old one, durably (0.5 ms on NVMe: file, rename, folder).

        Raises:
            OSError: the old head still stands, or the new one already does.
        """
        replace_file(self.path, head.note)

    def open(self, note: bytes, key: Signer) -> SignedHead:
        """The head that `note` signs with the log's own key.

        Raises:
            AffidavitError: LOG_DAMAGED: it is no checkpoint, or of another log.
        """
        try:
            return SignedHead(LogKeys(key.public_key()).open(note), note)
        except NoteError as error:
            message = (
                f"the signed head {self.path} is not this log's: {error}; restore the head that belongs to the log"
            )
            raise AffidavitError("LOG_DAMAGED", message) from None

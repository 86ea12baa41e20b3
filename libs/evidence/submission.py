"""The body of C2SP `tlog-witness` add-checkpoint: old size, consistency proof, checkpoint."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from affidavit.libs.evidence.merkle import HASH_BYTES
from affidavit.libs.evidence.note import NoteError, decode_base64

FENCED = "fenced: "  # begins a witness's 422 when it has cosigned a higher epoch of the log
MAX_PROOF_LINES = 63
SIZE_TYPE = "text/x.tlog.size"  # content type of the answer that names the witness's own size


@dataclass(frozen=True)
class Submission:
    """A checkpoint, and the proof that it continues the tree of `old_size` leaves."""

    old_size: int
    proof: Sequence[bytes]
    note: bytes

    def body(self) -> bytes:
        lines = [f"old {self.old_size}", *(base64.b64encode(digest).decode() for digest in self.proof)]
        return "\n".join(lines).encode() + b"\n\n" + self.note

    @classmethod
    def parse(cls, body: bytes) -> "Submission":
        """Raises NoteError unless `body` is an old size line, at most 63 hashes, an empty line and something more."""
        head, blank, note = body.partition(b"\n\n")
        if not blank or not note:
            raise NoteError("the body is an old size line, proof lines, an empty line and a checkpoint")
        try:
            first, *lines = head.decode("ascii").split("\n")
        except UnicodeDecodeError:
            raise NoteError("the lines before the checkpoint are ASCII") from None
        size = first.removeprefix("old ")
        if not first.startswith("old ") or not size.isdecimal() or len(size) > 20 or str(int(size)) != size:
            raise NoteError(f"{first!r} is no old size line")
        if len(lines) > MAX_PROOF_LINES:
            raise NoteError(f"at most {MAX_PROOF_LINES} proof lines")
        proof = tuple(decode_base64(line) for line in lines)
        if any(len(digest) != HASH_BYTES for digest in proof):
            raise NoteError("each proof line is one hash of 32 bytes")
        return cls(int(size), proof, note)

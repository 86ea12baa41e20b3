"""What a witness cosigns: per log the newest checkpoint it knows, and only what provably continues it.

State folder: `log.key`, `log.pub` (the witness's own pair), `seen/<SHA-256 of the origin>` (the newest cosigned
checkpoint with its cosignature), `lock`.
"""

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.cosignature import WitnessKey, cosign
from affidavit.libs.evidence.durablefile import make_folder, replace_file
from affidavit.libs.evidence.epoch import epoch_of
from affidavit.libs.evidence.keys import create_key, load_key
from affidavit.libs.evidence.note import NoteError, TreeHead, Verifier, open_checkpoint, split_note
from affidavit.libs.evidence.submission import FENCED, Submission


class Status(IntEnum):
    """HTTP statuses of C2SP `tlog-witness`."""

    COSIGNED = 200
    MALFORMED = 400
    UNTRUSTED = 403
    UNKNOWN_LOG = 404
    CONFLICT = 409
    INCONSISTENT = 422


class Answer(NamedTuple):
    """What the witness says; `size` is its own, set with CONFLICT."""

    status: Status
    text: str
    size: int | None = None


class StateHeld(Exception):
    """Another witness runs on this state folder."""


class Witness:
    """One witness over one state folder. Not for several threads: check and store must be one step."""

    def __init__(self, folder: Path, name: str, logs: Sequence[Verifier], now: Callable[[], float] = time.time) -> None:
        """Make the key at the first start.

        Raises:
            StateHeld: a second witness would let two checkpoints of one size pass.
            OSError, KeyFileError: see `load_key`.
        """
        self._seen = folder / "seen"
        make_folder(self._seen, 0o700)
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise StateHeld(f"another witness runs on {folder}; stop it first") from None
        try:
            self._key = load_key(folder)
        except FileNotFoundError:
            self._key = create_key(folder)
        self._name = name
        self._now = now
        self._logs: dict[str, list[Verifier]] = {}
        for log in logs:
            self._logs.setdefault(log.name, []).append(log)

    @property
    def verifier(self) -> WitnessKey:
        """What a log or an auditor is configured with."""
        return WitnessKey(self._name, self._key.public_key())

    def newest(self, origin: str) -> TreeHead | None:
        """The newest tree head of the log that was cosigned.

        Raises:
            NoteError: its file was damaged; the witness must not go on for this log as if it had seen nothing.
        """
        try:
            note = self._path(origin).read_bytes()
        except FileNotFoundError:
            return None
        return open_checkpoint(note, self._logs[origin])

    def add_checkpoint(self, body: bytes) -> Answer:
        """Judge a submission; the new state is durable before a cosignature is returned.

        Raises:
            NoteError: the state is damaged. OSError: the disk takes no write; nothing is cosigned.
        """
        try:
            submission = Submission.parse(body)
            text, signatures = split_note(submission.note)
            head = TreeHead.parse(text)
            epoch_of(head)
        except NoteError as error:
            return Answer(Status.MALFORMED, f"{error}\n")
        logs = self._logs.get(head.origin)
        if logs is None:
            return Answer(Status.UNKNOWN_LOG, f"no log {head.origin} is known here\n")
        try:
            open_checkpoint(submission.note, logs)
        except NoteError as error:
            return Answer(Status.UNTRUSTED, f"{error}\n")
        if submission.old_size > head.size:
            return Answer(Status.MALFORMED, f"old size {submission.old_size} is beyond the checkpoint's {head.size}\n")
        refusal = _judge(submission, head, self.newest(head.origin))
        if refusal is not None:
            return refusal
        cosignature = cosign(text, self._name, self._key, int(self._now()))
        own = {(log.name, log.key_id) for log in logs}
        kept = [s.line() for s in signatures if (s.name, s.key_id) in own]
        replace_file(self._path(head.origin), "".join([text, "\n", *kept, cosignature.line()]).encode())
        return Answer(Status.COSIGNED, cosignature.line())

    def close(self) -> None:
        os.close(self._lock)

    def _path(self, origin: str) -> Path:
        return self._seen / hashlib.sha256(origin.encode()).hexdigest()


def _judge(submission: Submission, head: TreeHead, newest: TreeHead | None) -> Answer | None:
    """Why `head` is not cosigned; None when it continues `newest`."""
    size, root = (newest.size, newest.root) if newest else (0, merkle.EMPTY_ROOT)
    if newest and epoch_of(head) < epoch_of(newest):
        return Answer(Status.INCONSISTENT, f"{FENCED}epoch {epoch_of(newest)} has been cosigned at {size} records\n")
    if submission.old_size != size or (head.size == size and head.root != root):
        return Answer(Status.CONFLICT, f"{size}\n", size)
    if size == 0 or head.size == size:
        empty = not submission.proof
        return None if empty else Answer(Status.INCONSISTENT, "this proof must be empty\n")
    try:
        merkle.verify_consistency(size, head.size, root, head.root, submission.proof)
    except merkle.ProofError as error:
        return Answer(Status.INCONSISTENT, f"not consistent with the tree of {size} records: {error}\n")
    return None

"""The epoch of a log: how often another copy of it has taken over, as a checkpoint says it.

A C2SP `tlog-checkpoint` may have extension lines after its root hash. This log's is `epoch N`, N from 1 without leading
zeroes; a log that no standby took over has none, and that is epoch 0. A checkpoint of a lower epoch than one that is
known was signed by a server that has been replaced: nobody may cosign it, publish it or append to it.
"""

from dataclasses import replace

from affidavit.libs.evidence.note import NoteError, TreeHead

_WORD = "epoch "
_MAX_DIGITS = 18


def epoch_of(head: TreeHead) -> int:
    """The epoch that a checkpoint names; 0 when it names none. Other extension lines are passed over.

    Raises:
        NoteError: it names two, or one that is no number in its one form.
    """
    found = [line.removeprefix(_WORD) for line in head.extensions if line.startswith(_WORD)]
    if not found:
        return 0
    text = found[0]
    if len(found) > 1 or not (text.isascii() and text.isdecimal()) or len(text) > _MAX_DIGITS or text[0] == "0":
        raise NoteError(f"a checkpoint names at most one epoch, a number from 1: {', '.join(found)!r} is none")
    return int(text)


def with_epoch(head: TreeHead, epoch: int) -> TreeHead:
    """`head` in another epoch, its other extension lines as they are."""
    others = tuple(line for line in head.extensions if not line.startswith(_WORD))
    return replace(head, extensions=(*others, f"{_WORD}{epoch}") if epoch else others)

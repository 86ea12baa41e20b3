"""A proof as one text file that other people's tools read: C2SP tlog-proof."""

import base64
from collections.abc import Iterable


def proof_text(index: int, hashes: Iterable[bytes], checkpoint: bytes) -> bytes:
    """`c2sp.org/tlog-proof@v1`: the leaf's index, its audit path, an empty line, the checkpoint."""
    lines = ["c2sp.org/tlog-proof@v1", f"index {index}", *(base64.b64encode(h).decode() for h in hashes), "", ""]
    return "\n".join(lines).encode() + checkpoint

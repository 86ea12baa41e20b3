"""RFC 3161 timestamps over checkpoints, as they stand in a folder beside the log.

`<tree size>.tsr` is the authority's response (DER), `<tree size>.checkpoint` the exact bytes that it is over. A response is
kept only once it was verified, after its checkpoint: where there is a `.tsr`, both are whole.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.x509 import Certificate, ObjectIdentifier
from rfc3161_client import TimeStampResponse, VerifierBuilder, decode_timestamp_response

from affidavit.libs.evidence.certificateorder import sorted_certificates
from affidavit.libs.evidence.durablefile import make_folder, replace_file

FOLDER = Path("side") / "timestamps"  # in the log's folder
SUFFIX = ".tsr"
_CHECKPOINT_SUFFIX = ".checkpoint"
_SHA256 = ObjectIdentifier("2.16.840.1.101.3.4.2.1")


class TimestampError(ValueError):
    """A response is malformed, refused, over something else, or not of a trusted authority."""


@dataclass(frozen=True)
class Timestamp:
    """A checkpoint, and an authority's response over it."""

    size: int  # the checkpoint's records
    checkpoint: bytes
    response: bytes  # TimeStampResp, DER

    def check_imprint(self) -> None:
        """Whether the response is over the checkpoint's bytes at all; by whom, and whether truly, is not asked.

        Raises:
            TimestampError: it is not.
        """
        try:
            imprint = self._decoded().tst_info.message_imprint
        except Exception as error:  # also what the library's parsers raise
            raise TimestampError(f"no timestamp response: {error}") from None
        if imprint.hash_algorithm != _SHA256 or imprint.message != hashlib.sha256(self.checkpoint).digest():
            raise TimestampError(f"the timestamp of {self.size} records is not over the checkpoint beside it")

    def verify(self, roots: Sequence[Certificate], nonce: int | None = None) -> float:
        """The time that an authority under `roots` vouches for, POSIX seconds.

        Args:
            nonce: what was sent with the request, when this is its answer.

        Raises:
            TimestampError: it does not verify (RFC 3161: status, signature, chain, key usage, nonce, imprint).
        """
        self.check_imprint()
        builder = VerifierBuilder(roots=list(roots), nonce=nonce)
        response = self._decoded()
        try:
            builder.build().verify_message(response, self.checkpoint)
        except Exception as error:  # the library lets through what its parsers raise, such as x509.InvalidVersion
            raise TimestampError(str(error)) from None
        return response.tst_info.gen_time.timestamp()

    def _decoded(self) -> TimeStampResponse:
        return decode_timestamp_response(sorted_certificates(self.response))


class TimestampFolder:
    """Kept timestamps, by tree size."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, timestamp: Timestamp) -> None:
        """Raises OSError: the disk refuses, and no response stands without its checkpoint."""
        make_folder(self._folder)
        replace_file(self._folder / f"{timestamp.size}{_CHECKPOINT_SUFFIX}", timestamp.checkpoint)
        replace_file(self._folder / f"{timestamp.size}{SUFFIX}", timestamp.response)

    def sizes(self) -> list[int]:
        """Tree sizes that have a timestamp, ascending."""
        names = (path.name.removesuffix(SUFFIX) for path in self._folder.glob(f"*{SUFFIX}"))
        return sorted(int(name) for name in names if name.isascii() and name.isdecimal())

    def of_size(self, size: int) -> Timestamp | None:
        """The timestamp over the checkpoint of `size` records.

        Raises:
            OSError: it cannot be read.
        """
        try:
            response = (self._folder / f"{size}{SUFFIX}").read_bytes()
        except FileNotFoundError:
            return None
        return Timestamp(size, (self._folder / f"{size}{_CHECKPOINT_SUFFIX}").read_bytes(), response)

    def first_covering(self, index: int) -> Timestamp | None:
        """The earliest timestamp whose checkpoint covers record `index`.

        Raises:
            OSError: it cannot be read.
        """
        size = next((size for size in self.sizes() if size > index), None)
        return None if size is None else self.of_size(size)

"""Having the newest checkpoint timestamped (RFC 3161) on a schedule, and keeping what verifies.

A timestamp is evidence beside the log, never read at start: the log goes on without its authority, and a metric shows
since when.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import aiohttp
from cryptography.x509 import Certificate, load_pem_x509_certificates
from rfc3161_client import HashAlgorithm, TimestampRequestBuilder

from affidavit.libs.evidence.timestamps import Timestamp, TimestampError, TimestampFolder
from affidavit.libs.telemetry import get_logger
from affidavit.services.audit import metrics
from affidavit.services.audit.development_authority import DevelopmentAuthority
from affidavit.services.audit.log import EvidenceLog

DEVELOPMENT = "development"
_TIMEOUT = aiohttp.ClientTimeout(total=30)
_MAX_ANSWER_BYTES = 65_536
_log = get_logger("timestamping")


class Authority(Protocol):
    """Who says what time it is."""

    roots: Sequence[Certificate]

    async def answer(self, query: bytes) -> bytes:
        """The response (DER) to a query (DER); raises TimestampError, OSError, TimeoutError or aiohttp.ClientError."""
        ...


class AuthorityAt:
    """An authority that is asked over HTTP (RFC 3161, 3.4)."""

    def __init__(self, url: str, roots: Sequence[Certificate]) -> None:
        self._url = url
        self.roots = roots

    async def answer(self, query: bytes) -> bytes:
        headers = {"Content-Type": "application/timestamp-query", "Accept": "application/timestamp-reply"}
        async with (
            aiohttp.ClientSession(timeout=_TIMEOUT) as session,
            session.post(self._url, data=query, headers=headers) as response,
        ):
            answer = bytearray()
            async for piece in response.content.iter_any():
                answer += piece
                if len(answer) > _MAX_ANSWER_BYTES:
                    raise TimestampError(f"its answer has more than {_MAX_ANSWER_BYTES} bytes")
            if response.status != 200:
                raise TimestampError(f"HTTP {response.status}")
            return bytes(answer)


def authority(name: str, roots: str, side: Path) -> Authority | None:
    """The authority that the settings name: none, the development one in `side`, or the one at a URL.

    Raises:
        TimestampError: the settings do not name one. OSError: a file cannot be read or made.
    """
    if not name:
        return None
    if name == DEVELOPMENT:
        return DevelopmentAuthority(side / "development-authority")
    if not name.startswith(("http://", "https://")):
        raise TimestampError(f"timestamp_authority {name!r} is neither {DEVELOPMENT!r} nor http://… or https://…")
    if not roots:
        raise TimestampError("timestamp_roots is needed: the authority's root certificates, a PEM file")
    path = Path(roots).expanduser()
    try:
        return AuthorityAt(name, load_pem_x509_certificates(path.read_bytes()))
    except ValueError as error:
        raise TimestampError(f"timestamp_roots {path}: no PEM certificates: {error}") from None


class Timestamping:
    """Has heads of `log` timestamped, and keeps them in `folder`."""

    def __init__(self, log: EvidenceLog, authority: Authority, folder: Path) -> None:
        self._log = log
        self._authority = authority
        self._kept = TimestampFolder(folder)
        self._covered = b""  # the checkpoint that has a timestamp

    async def run(self, every_s: float) -> None:
        """Have the newest head timestamped now and every `every_s` seconds, until cancelled."""
        while True:
            await self.once()
            await asyncio.sleep(every_s)

    async def once(self) -> Timestamp | None:
        """Have the newest head timestamped, unless it is already, or covers nothing. What was kept."""
        head = self._log.head
        if not head.tree.size:
            return None
        made = None
        try:
            if head.note != self._covered and not await asyncio.to_thread(self._is_kept, head.tree.size, head.note):
                made = await self._ask(head.tree.size, head.note)
        except (aiohttp.ClientError, TimeoutError) as error:
            return self._failed("unreachable", error)
        except TimestampError as error:
            return self._failed("refused", error)
        except OSError as error:
            return self._failed("os", error)
        self._covered = head.note
        metrics.timestamped_leaves.set(head.tree.size)
        metrics.timestamped_time.set(time.time())
        return made

    def _is_kept(self, size: int, note: bytes) -> bool:
        kept = self._kept.of_size(size)
        return kept is not None and kept.checkpoint == note

    async def _ask(self, size: int, note: bytes) -> Timestamp:
        query = TimestampRequestBuilder().data(note).hash_algorithm(HashAlgorithm.SHA256).build()
        timestamp = Timestamp(size, note, await self._authority.answer(query.as_bytes()))
        timestamp.verify(self._authority.roots, query.nonce)
        await asyncio.to_thread(self._kept.keep, timestamp)
        return timestamp

    def _failed(self, code: str, error: Exception) -> None:
        metrics.timestamp_failures.labels(code).inc()
        _log.error("timestamp_failed", code=code, error=f"{type(error).__name__}: {error}")

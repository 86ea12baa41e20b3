"""Getting the newest checkpoint cosigned by witnesses, on a schedule, and keeping the newest that enough of them cosigned.

What is kept, `side/cosigned`: the log's checkpoint with the cosignature lines, a note that others' tools verify. It is
evidence beside the log, never read at start: the log goes on without its witnesses, and a metric shows how long.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.cosignature import Cosigned, cosignatures
from affidavit.libs.evidence.durablefile import make_folder, replace_file
from affidavit.libs.evidence.note import NoteError, split_note
from affidavit.libs.evidence.submission import FENCED, Submission
from affidavit.libs.telemetry import get_logger
from affidavit.services.audit import metrics
from affidavit.services.audit.head import SignedHead
from affidavit.services.audit.log import EvidenceLog
from affidavit.services.audit.witnessat import WitnessAt

NAME = "cosigned"
_TIMEOUT = aiohttp.ClientTimeout(total=10)
_FIRST_TIMEOUT = aiohttp.ClientTimeout(total=3)
_MAX_ANSWER_BYTES = 65_536
_log = get_logger("cosigning")


class WitnessRefused(Exception):
    """A witness did not cosign; `inconsistent` when it says that this log is not what it has seen."""

    def __init__(self, message: str, *, inconsistent: bool = False) -> None:
        super().__init__(message)
        self.inconsistent = inconsistent


class Cosigning:
    """Submits heads of `log`; `quorum` of `witnesses` make a head cosigned."""

    def __init__(self, log: EvidenceLog, witnesses: Sequence[WitnessAt], quorum: int, folder: Path) -> None:
        self._log = log
        self._witnesses = witnesses
        self._quorum = quorum
        self._folder = folder
        self._sizes: dict[str, int] = {}  # what each witness has cosigned, as it said last

    async def run(self, every_s: float) -> None:
        """Submit the newest head now and every `every_s` seconds, until cancelled."""
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
            while True:
                await self.once(session)
                await asyncio.sleep(every_s)

    async def first(self) -> None:
        """Submit the newest head once, without waiting long for witnesses that do not answer."""
        async with aiohttp.ClientSession(timeout=_FIRST_TIMEOUT) as session:
            await self.once(session)

    async def once(self, session: aiohttp.ClientSession) -> tuple[Cosigned, ...]:
        """Have the newest head cosigned; it is kept when the quorum did. The cosignatures that came."""
        head = self._log.head
        outcomes = await asyncio.gather(*(self._ask(session, witness, head) for witness in self._witnesses))
        found = tuple(cosigned for cosigned in outcomes if cosigned is not None)
        if len(found) >= self._quorum:
            note = head.note + "".join(cosigned.signature.line() for cosigned in found).encode()
            try:
                await asyncio.to_thread(self._keep, note)
            except OSError as error:
                _log.error("cosigned_checkpoint_not_kept", error=str(error))
                return found
            metrics.cosigned_leaves.set(head.tree.size)
            metrics.cosigned_time.set(time.time())
        return found

    def _keep(self, note: bytes) -> None:
        make_folder(self._folder)
        replace_file(self._folder / NAME, note)

    async def _ask(self, session: aiohttp.ClientSession, witness: WitnessAt, head: SignedHead) -> Cosigned | None:
        name = witness.key.name
        try:
            return await self._submit(session, witness, head)
        except WitnessRefused as error:
            outcome = "inconsistent" if error.inconsistent else "refused"
            _log.error("witness_refused", witness=name, error=str(error), inconsistent=error.inconsistent)
        except (aiohttp.ClientError, TimeoutError) as error:
            outcome = "unreachable"
            _log.warning("witness_unreachable", witness=name, error=f"{type(error).__name__}: {error}")
        except (NoteError, AffidavitError) as error:
            outcome = "refused"
            _log.error("witness_answer_unusable", witness=name, error=str(error))
        metrics.witness_failures.labels(outcome).inc()
        return None

    async def _submit(self, session: aiohttp.ClientSession, witness: WitnessAt, head: SignedHead) -> Cosigned:
        size = head.tree.size
        for _ in range(2):  # the second time with the size that the witness named
            old = self._sizes.get(witness.url, 0)
            proof = self._log.prove_consistency(old, size) if 0 < old < size else []
            body = Submission(old, proof, head.note).body()
            async with session.post(f"{witness.url}/add-checkpoint", data=body) as response:
                answer = await response.content.read(_MAX_ANSWER_BYTES)
                status = response.status
            if status == 200:
                found = cosignatures(*split_note(head.note + answer), [witness.key])
                if not found:
                    raise WitnessRefused("it answered without its cosignature")
                self._sizes[witness.url] = size
                return found[0]
            words = answer.decode(errors="replace").strip()
            if status == 422 and words.startswith(FENCED):
                self._log.fence(f"witness {witness.key.name} says {words}: a standby has taken this log over")
                raise WitnessRefused(words, inconsistent=True)
            if status == 422:
                raise WitnessRefused(f"this log does not continue what it cosigned: {words}", inconsistent=True)
            if status != 409:
                raise WitnessRefused(f"HTTP {status}: {words}")
            if not words.isdecimal() or len(words) > 20:
                raise WitnessRefused(f"HTTP 409 without a size: {words!r}")
            theirs = int(words)
            if theirs > size:
                message = f"it has cosigned {theirs} records of this log, which has {size}: {theirs - size} are gone"
                raise WitnessRefused(message, inconsistent=True)
            if theirs == old == size:
                raise WitnessRefused(f"it has cosigned another tree of {size} records", inconsistent=True)
            self._sizes[witness.url] = theirs
        raise WitnessRefused("its size moved while it was asked")

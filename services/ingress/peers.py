"""The services behind this one: a channel and a stub each."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import grpc

from affidavit.audit.v1 import audit_pb2_grpc
from affidavit.libs.errors import AffidavitError, from_rpc_error
from affidavit.libs.rpc import connect, is_serving
from affidavit.libs.runtime import SERVICE_NAMES
from affidavit.ocr.v1 import ocr_pb2_grpc
from affidavit.preprocess.v1 import preprocess_pb2_grpc

T = TypeVar("T")


@dataclass(frozen=True)
class Peer:
    """One service behind this one."""

    service: str
    channel: grpc.aio.Channel

    @classmethod
    def at(cls, service: str, peers: str) -> "Peer":
        return cls(service, connect(peers, health_service=SERVICE_NAMES[service]))

    async def check(self, timeout_s: float) -> None:
        """Raises SERVICE_UNAVAILABLE unless some replica is ready."""
        try:
            serving = await is_serving(self.channel, SERVICE_NAMES[self.service], timeout_s)
        except grpc.aio.AioRpcError as error:
            raise AffidavitError("SERVICE_UNAVAILABLE", f"{self.service} does not answer: {error.details()}") from None
        if not serving:
            raise AffidavitError("SERVICE_UNAVAILABLE", f"{self.service} is not ready")


class Peers:
    """All of them."""

    def __init__(self, preprocess: str, ocr: str, audit: str) -> None:
        """Addresses as `libs.rpc.connect` takes them."""
        self._all = {
            "preprocess": Peer.at("preprocess", preprocess),
            "ocr": Peer.at("ocr", ocr),
            "audit": Peer.at("audit", audit),
        }
        self.preprocess = preprocess_pb2_grpc.PageServiceStub(self._all["preprocess"].channel)
        self.ocr = ocr_pb2_grpc.OcrServiceStub(self._all["ocr"].channel)
        self.audit = audit_pb2_grpc.AuditServiceStub(self._all["audit"].channel)

    async def check(self, timeout_s: float = 2.0) -> None:
        """Raises SERVICE_UNAVAILABLE, naming the service, unless each has a ready replica."""
        await asyncio.gather(*(peer.check(timeout_s) for peer in self._all.values()))

    async def close(self) -> None:
        await asyncio.gather(*(peer.channel.close() for peer in self._all.values()))


class RetryBudget:
    """The one owner of retries: they may add at most `ratio` to the calls made, so that a fault never multiplies load.

    Every call earns `ratio` of a retry, up to `reserve` saved; a retry spends one. (Finagle's RetryBudget.)
    """

    def __init__(self, ratio: float = 0.1, reserve: float = 10.0) -> None:
        self._ratio = ratio
        self._reserve = reserve
        self._saved = reserve

    def earn(self) -> None:
        self._saved = min(self._reserve, self._saved + self._ratio)

    def spend(self) -> bool:
        """Whether one retry may be made now."""
        if self._saved < 1:
            return False
        self._saved -= 1
        return True


async def repeated(peer: str, budget: RetryBudget, call: Callable[[], Awaitable[T]], attempts: int = 4) -> T:
    """The answer of a call that may be made again: while it says UNAVAILABLE, within the budget.

    Raises:
        AffidavitError: what the peer answered last.
    """
    budget.earn()
    attempt = 1
    while True:
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE or attempt >= attempts or not budget.spend():
                raise from_rpc_error(error, peer) from None
        await asyncio.sleep(backoff_s(attempt))
        attempt += 1


def backoff_s(attempt: int) -> float:
    """Seconds before retry number `attempt` (from 1): full jitter up to 0.2, 0.4, 0.8, ... at most 2."""
    return random.uniform(0.05, min(2.0, 0.2 * 2 ** (attempt - 1)))

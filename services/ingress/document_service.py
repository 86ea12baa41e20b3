"""`affidavit.ingress.v1.DocumentService` on the wire: admission, deadline, one Recognition a call."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc

from affidavit.ingress.v1 import document_pb2 as ingress_pb2
from affidavit.ingress.v1 import document_pb2_grpc as ingress_grpc
from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.environment import environment_facts
from affidavit.libs.rpc import current_call
from affidavit.ocr.v1 import ocr_pb2
from affidavit.preprocess.v1 import preprocess_pb2
from affidavit.services.ingress.appender import Appender
from affidavit.services.ingress.environment_record import EnvironmentRecord
from affidavit.services.ingress.peers import Peers, RetryBudget, repeated
from affidavit.services.ingress.recognition import Recognition

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True)
class Limits:
    """What the edge allows."""

    max_documents: int  # at once
    look_ahead: int  # pages of a document drawn and not yet delivered
    document_deadline_s: float
    max_upload_bytes: int


class DocumentServicer(ingress_grpc.DocumentServiceServicer):
    """Documents to text."""

    def __init__(self, peers: Peers, limits: Limits, software: str) -> None:
        self._peers = peers
        self._limits = limits
        self._software = software
        self._appender = Appender(peers.audit)
        self._budget = RetryBudget()
        self._environment = EnvironmentRecord(self._appender, environment_facts())
        self._running = 0

    async def RecognizeDocument(
        self, request_iterator: AsyncIterator[ingress_pb2.RecognizeDocumentRequest], context: Context
    ) -> AsyncIterator[ingress_pb2.RecognizeDocumentResponse]:
        if self._running >= self._limits.max_documents:
            raise AffidavitError("QUEUE_FULL", f"{self._running} documents are being read here already")
        self._running += 1
        try:
            recognition = Recognition(
                self._peers,
                self._appender,
                self._budget,
                current_call(),
                environment=self._environment,
                look_ahead=self._limits.look_ahead,
                max_upload_bytes=self._limits.max_upload_bytes,
                timeout_s=min(context.time_remaining() or float("inf"), self._limits.document_deadline_s),
            )
            async for response in recognition.responses(request_iterator):
                match response.WhichOneof("message"):
                    case "accepted":
                        await context.send_initial_metadata((("x-served-version", response.accepted.bundle),))
                    case "completed":
                        index = str(response.completed.receipt.index)
                        context.set_trailing_metadata((("x-record-index", index),))
                    case _:
                        pass
                yield response
        finally:
            self._running -= 1

    async def GetServiceInfo(
        self, request: ingress_pb2.GetServiceInfoRequest, context: Context
    ) -> ingress_pb2.GetServiceInfoResponse:
        query = ocr_pb2.GetBundleRequest(bundle=current_call().model_version)
        answer = await repeated("ocr", self._budget, lambda: self._peers.ocr.GetBundle(query, timeout=10))
        return ingress_pb2.GetServiceInfoResponse(
            software=self._software,
            bundle=answer.bundle,
            max_upload_bytes=self._limits.max_upload_bytes,
        )

    async def canary(self) -> None:
        """Ready once every service behind is, and this machine's environment is on record. Later failures of theirs are
        told to callers as UNAVAILABLE, and do not take the edge down with them."""
        if not self._environment.known:
            await self._peers.check()
            answer = await self._peers.preprocess.GetServiceInfo(preprocess_pb2.GetServiceInfoRequest(), timeout=10)
            await self._environment.index(answer.info)

    async def close(self) -> None:
        await self._appender.close()
        await self._peers.close()

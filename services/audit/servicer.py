"""The gRPC edge of the evidence log."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc

from affidavit.audit.v1 import audit_pb2, audit_pb2_grpc
from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.draft import check_name
from affidavit.libs.runtime import SERVICE_NAMES
from affidavit.services.audit.append_stream import AppendStream, receipt
from affidavit.services.audit.appender import Appender
from affidavit.services.audit.log import EvidenceLog
from affidavit.services.audit.publishing import Publisher
from affidavit.services.audit.reading import list_records
from affidavit.services.audit.store import record_key
from affidavit.services.audit.watch import HeadWatch

Context = grpc.aio.ServicerContext[Any, Any]


class AuditServicer(audit_pb2_grpc.AuditServiceServicer):
    """Answers calls from the log; appends go through the appender."""

    def __init__(
        self, log: EvidenceLog, appender: Appender, watch: HeadWatch, publisher: Publisher, draining: asyncio.Event
    ) -> None:
        self._log = log
        self._appender = appender
        self._watch = watch
        self._publisher = publisher
        self._draining = draining
        self._canaries = 0

    def serve(self, server: grpc.aio.Server) -> None:
        """Add the service to `server`, its AppendRecords with messages as bytes."""
        audit_pb2_grpc.add_AuditServiceServicer_to_server(self, server)
        append = {"AppendRecords": grpc.stream_stream_rpc_method_handler(self.AppendRecords)}
        server.add_registered_method_handlers(SERVICE_NAMES["audit"], append)  # in the place of the one just added

    async def AppendRecords(  # pyright: ignore[reportIncompatibleMethodOverride]  # bytes; see `serve`
        self, request_iterator: AsyncIterator[bytes], context: Context
    ) -> AsyncIterator[bytes]:
        responses = AppendStream(self._appender, self._draining).responses(request_iterator)
        async with aclosing(responses):
            async for response in responses:
                # Not by `yield`, through a generator of each interceptor: a third of a message's cost.
                await context.write(response)
        return
        yield

    async def GetRecord(self, request: audit_pb2.GetRecordRequest, context: Context) -> audit_pb2.GetRecordResponse:
        match request.WhichOneof("selector"):
            case "index":
                index = request.index
            case "key":
                key = request.key
                for name, part in (("tenant", key.tenant), ("request_id", key.request_id), ("step", key.step)):
                    check_name(f"key.{name}", part)
                index = self._log.find(record_key(key.tenant, key.request_id, key.step))
            case _:
                raise AffidavitError("INVALID_OPTION", "give an index or a key", field="selector")
        return audit_pb2.GetRecordResponse(receipt=receipt(self._log.record(index)))

    async def ForgetRecords(
        self, request: audit_pb2.ForgetRecordsRequest, context: Context
    ) -> audit_pb2.ForgetRecordsResponse:
        for name, part in (("tenant", request.tenant), ("request_id", request.request_id)):
            check_name(name, part)
        indices = await self._appender.on_writer(lambda: self._log.forget(request.tenant, request.request_id))
        return audit_pb2.ForgetRecordsResponse(indices=indices)

    async def GetCheckpoint(
        self, request: audit_pb2.GetCheckpointRequest, context: Context
    ) -> audit_pb2.GetCheckpointResponse:
        return audit_pb2.GetCheckpointResponse(
            checkpoint=evidence_pb2.Checkpoint(note=self._log.head.note),
            public_key_pem=self._log.public_key_pem().decode(),
        )

    async def GetInclusionProof(
        self, request: audit_pb2.GetInclusionProofRequest, context: Context
    ) -> audit_pb2.GetInclusionProofResponse:
        head = self._log.head
        size = request.tree_size or head.tree.size
        path = self._log.prove(request.leaf_index, size)
        proof = evidence_pb2.InclusionProof(leaf_index=request.leaf_index, tree_size=size, hashes=path)
        checkpoint = None if request.tree_size else evidence_pb2.Checkpoint(note=head.note)
        return audit_pb2.GetInclusionProofResponse(inclusion_proof=proof, checkpoint=checkpoint)

    async def GetConsistencyProof(
        self, request: audit_pb2.GetConsistencyProofRequest, context: Context
    ) -> audit_pb2.GetConsistencyProofResponse:
        head = self._log.head
        size = request.second_size or head.tree.size
        path = self._log.prove_consistency(request.first_size, size)
        checkpoint = None if request.second_size else evidence_pb2.Checkpoint(note=head.note)
        return audit_pb2.GetConsistencyProofResponse(hashes=path, second_size=size, checkpoint=checkpoint)

    async def ListRecords(
        self, request: audit_pb2.ListRecordsRequest, context: Context
    ) -> AsyncIterator[audit_pb2.ListRecordsResponse]:
        async for response in list_records(self._log, request):
            yield response

    async def WatchCheckpoints(
        self, request: audit_pb2.WatchCheckpointsRequest, context: Context
    ) -> AsyncIterator[audit_pb2.WatchCheckpointsResponse]:
        async with aclosing(self._watch.heads()) as heads:  # a reader that left is forgotten at once
            async for head in heads:
                yield audit_pb2.WatchCheckpointsResponse(checkpoint=evidence_pb2.Checkpoint(note=head.note))

    async def canary(self) -> None:
        """The head verifies, the newest record is whole, the disk takes a synced write; a log that had stopped
        appending is opened anew first."""
        self._canaries += 1
        if self._log.failure:
            await self._appender.on_writer(self._log.reopen)
            self._watch.moved()
        await self._appender.on_writer(lambda: self._log.touch(self._canaries))

    async def close(self) -> None:
        await self._appender.close()
        await self._publisher.close()
        self._log.close()

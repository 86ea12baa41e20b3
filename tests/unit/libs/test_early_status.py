"""A caller that is still sending learns why it was refused, every time."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress

import grpc
import pytest

from affidavit.libs.rpc import connect
from affidavit.preprocess.v1 import preprocess_pb2 as pb
from affidavit.preprocess.v1 import preprocess_pb2_grpc


class Refusing(preprocess_pb2_grpc.PageServiceServicer):
    async def RenderDocument(self, request_iterator, context):
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
        yield pb.RenderDocumentResponse()


@pytest.fixture
async def address(tmp_path) -> AsyncIterator[str]:
    server = grpc.aio.server()
    preprocess_pb2_grpc.add_PageServiceServicer_to_server(Refusing(), server)
    address = f"unix:{tmp_path}/refusing.sock"
    server.add_insecure_port(address)
    await server.start()
    yield address
    await server.stop(0)


@pytest.mark.parametrize("style", ["write", "iterator"])
async def test_a_refusal_reaches_a_caller_that_is_still_sending(address: str, style: str) -> None:
    async def chunks() -> AsyncIterator[pb.RenderDocumentRequest]:
        for _ in range(8):
            yield pb.RenderDocumentRequest(chunk=bytes(1000))

    seen: Counter[grpc.StatusCode] = Counter()
    async with connect(address) as channel:
        stub = preprocess_pb2_grpc.PageServiceStub(channel)
        for _ in range(200):
            call = stub.RenderDocument(chunks()) if style == "iterator" else stub.RenderDocument()
            try:
                if style == "write":
                    with suppress(asyncio.InvalidStateError):  # grpc's word for "the call has ended: read its status"
                        async for chunk in chunks():
                            await call.write(chunk)
                        await call.done_writing()
                async for _ in call:
                    pass
            except grpc.aio.AioRpcError as error:
                seen[error.code()] += 1
    assert seen == {grpc.StatusCode.RESOURCE_EXHAUSTED: 200}

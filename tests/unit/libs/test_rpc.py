"""Every server answers with reasons, request ids and honest health; every channel carries them on."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from affidavit.errors.v1 import errors_pb2
from affidavit.libs import errors
from affidavit.libs.errors import AffidavitError
from affidavit.libs.rpc import RpcSettings, ServiceHost, connect, current_call
from affidavit.libs.rpc.channel import target
from affidavit.ocr.v1 import ocr_pb2, ocr_pb2_grpc

NAME = "affidavit.ocr.v1.OcrService"


class Servicer(ocr_pb2_grpc.OcrServiceServicer):
    def __init__(self) -> None:
        self.request_ids: list[str] = []
        self.healthy = True

    async def GetBundle(self, request, context):
        self.request_ids.append(current_call().request_id)
        if request.bundle == "bug":
            raise ZeroDivisionError
        raise AffidavitError("BUNDLE_NOT_FOUND", "no such bundle; there is document@1", field="bundle")

    async def RecognizePages(self, requests, context):
        async for request in requests:
            if request.bundle.startswith("refuse"):
                raise AffidavitError("UPLOAD_TOO_LARGE", "too large")
            yield ocr_pb2.RecognizePagesResponse(sequence=request.sequence)

    async def canary(self) -> None:
        if not self.healthy:
            raise RuntimeError("wrong answer")


@pytest.fixture
async def served(tmp_path) -> AsyncIterator[tuple[Servicer, str, ServiceHost]]:
    address = f"unix:{tmp_path}/ocr.sock"
    host = ServiceHost("ocr", RpcSettings(address=address, canary_interval_s=0.05, drain_s=0.2))
    servicer = Servicer()
    ocr_pb2_grpc.add_OcrServiceServicer_to_server(servicer, host.server)
    closed = asyncio.Event()

    async def close() -> None:
        closed.set()

    task = asyncio.create_task(host.run(canary=servicer.canary, close=close))
    yield servicer, address, host
    host.stop()
    await task
    assert closed.is_set()


def test_every_reason_has_exactly_one_rule() -> None:
    names = {name.removeprefix("REASON_") for name in errors_pb2.Reason.keys()} - {"UNSPECIFIED"}  # noqa: SIM118
    assert set(errors.RULES) == names


async def test_an_error_crosses_the_wire_with_code_reason_and_message(served) -> None:
    servicer, address, _ = served
    async with connect(address, health_service=NAME) as channel:
        stub = ocr_pb2_grpc.OcrServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetBundle(ocr_pb2.GetBundleRequest(), metadata=(("x-request-id", "abc"),), wait_for_ready=True)
    error = errors.from_rpc_error(caught.value, "ocr")
    assert (error.reason, error.code, str(error)) == (
        "BUNDLE_NOT_FOUND",
        grpc.StatusCode.NOT_FOUND,
        "no such bundle; there is document@1",
    )
    assert servicer.request_ids == ["abc"]


async def test_a_bug_is_internal_and_names_the_request_id_not_the_exception(served) -> None:
    _, address, _ = served
    async with connect(address, health_service=NAME) as channel:
        stub = ocr_pb2_grpc.OcrServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetBundle(ocr_pb2.GetBundleRequest(bundle="bug"), metadata=(("x-request-id", "r7"),))
    assert caught.value.code() == grpc.StatusCode.INTERNAL
    assert "r7" in caught.value.details()
    assert "ZeroDivision" not in caught.value.details()


async def test_streams_pass_through_the_chain(served) -> None:
    _, address, _ = served

    async def requests():
        for i in range(3):
            yield ocr_pb2.RecognizePagesRequest(sequence=i)

    async with connect(address, health_service=NAME) as channel:
        stub = ocr_pb2_grpc.OcrServiceStub(channel)
        assert [r.sequence async for r in stub.RecognizePages(requests())] == [0, 1, 2]


async def test_readiness_follows_the_canary_and_liveness_does_not(served) -> None:
    servicer, address, _ = served
    statuses = health_pb2.HealthCheckResponse
    async with connect(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=NAME))
        seen = []
        async with asyncio.timeout(10):
            async for update in watch:
                seen.append(update.status)
                if update.status == statuses.SERVING and servicer.healthy:
                    servicer.healthy = False
                elif update.status == statuses.NOT_SERVING and not servicer.healthy:
                    break
        assert seen[-2:] == [statuses.SERVING, statuses.NOT_SERVING]
        alive = await stub.Check(health_pb2.HealthCheckRequest(service=""))
        assert alive.status == statuses.SERVING


async def test_drain_says_not_serving_before_it_refuses_calls(served) -> None:
    _, address, host = served
    async with connect(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=NAME))
        async with asyncio.timeout(10):
            async for update in watch:
                if update.status == health_pb2.HealthCheckResponse.SERVING:
                    host.stop()
                elif host._stopping.is_set():
                    assert update.status == health_pb2.HealthCheckResponse.NOT_SERVING
                    return
    pytest.fail("the watch ended without NOT_SERVING")


@pytest.mark.parametrize(
    ("peers", "name"),
    [
        ("127.0.0.1:1", "ipv4:127.0.0.1:1"),
        ("127.0.0.1:1, 127.0.0.1:2", "ipv4:127.0.0.1:1,127.0.0.1:2"),
        ("ocr:7442", "dns:///ocr:7442"),
        ("dns:///ocr:7442", "dns:///ocr:7442"),
        ("unix:/run/ocr.sock", "unix:/run/ocr.sock"),
    ],
)
def test_peers_become_one_grpc_name(peers: str, name: str) -> None:
    assert target(peers) == name


def test_peers_that_cannot_be_balanced_together_are_refused() -> None:
    with pytest.raises(ValueError, match="dns:///"):
        target("a:1,b:2")


async def test_a_call_ended_during_its_upload_has_the_servers_status_every_time(served) -> None:
    _, address, _host = served

    async def requests():
        for _ in range(100):
            yield ocr_pb2.RecognizePagesRequest(bundle="refuse" + "x" * 200_000)

    async with connect(address) as channel:
        stub = ocr_pb2_grpc.OcrServiceStub(channel)
        for _ in range(20):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in stub.RecognizePages(requests()):
                    pass
            assert errors.from_rpc_error(caught.value, "ocr").reason == "UPLOAD_TOO_LARGE"

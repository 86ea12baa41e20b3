"""The preprocess service as a process of its own, and a caller of it that does what the contract says."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import psutil
from grpc_health.v1 import health_pb2, health_pb2_grpc

from affidavit.libs.errors import AffidavitError, from_rpc_error
from affidavit.libs.pageimages import pixels
from affidavit.libs.rpc.limits import CHANNEL_OPTIONS
from affidavit.preprocess.v1 import preprocess_pb2 as pb
from affidavit.preprocess.v1 import preprocess_pb2_grpc

NAME = "affidavit.preprocess.v1.PageService"
SHARED = Path(__file__).parents[3] / "shared" / "data" / "ocr"


@dataclass
class PreprocessProcess:
    """A running service."""

    process: subprocess.Popen[bytes]
    address: str
    shared_memory: Path
    log: Path

    def leases(self) -> list[str]:
        return [path.name for path in self.shared_memory.glob("*")]

    def spooled(self) -> int:
        """Uploads that the process holds on disk."""
        links = Path(f"/proc/{self.process.pid}/fd").iterdir()
        return sum("spool" in os.readlink(link) for link in links if link.is_symlink())

    def workers(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def channel(self) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(self.address, options=CHANNEL_OPTIONS)


@contextmanager
def serving(*flags: str, shared_memory: str = "", **environment: str) -> Iterator[PreprocessProcess]:
    """Run the service until it is ready; stop it afterwards, and see that it leaves nothing."""
    with tempfile.TemporaryDirectory(prefix="affidavit-", dir="/dev/shm") as shm, tempfile.TemporaryDirectory() as home:
        address = f"unix:{home}/preprocess.sock"
        leases = Path(shared_memory or f"{shm}/leases")
        environment = {**os.environ, "AFFIDAVIT_HOME": home, "AFFIDAVIT_SHM": str(leases), **environment}
        command = [sys.executable, "-m", "affidavit.services.preprocess", "--address", address, *flags]
        log = Path(home, "log")
        with log.open("wb") as errors:
            process = subprocess.Popen(command, env=environment, stderr=errors)
        try:
            with grpc.insecure_channel(address) as channel:
                watch = health_pb2_grpc.HealthStub(channel).Watch(
                    health_pb2.HealthCheckRequest(service=NAME), wait_for_ready=True, timeout=60
                )
                assert any(answer.status == health_pb2.HealthCheckResponse.SERVING for answer in watch)
                watch.cancel()
            yield PreprocessProcess(process, address, leases, log)
            if process.poll() is None:  # the test may have killed it
                process.terminate()
                assert process.wait(30) == 0
            assert list(leases.glob("*")) == []
        finally:
            process.kill()
            process.wait(10)


@dataclass
class Rendering:
    """What came back for a document."""

    opened: pb.DocumentOpened | None = None
    pages: list[pb.RenderedPage] = field(default_factory=list)
    failures: list[pb.PageFailure] = field(default_factory=list)
    finished: bool = False
    error: AffidavitError | None = None

    @property
    def reason(self) -> str:
        return self.error.reason if self.error else ""


class Caller:
    """One call: sends what it is told, in order."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._requests: asyncio.Queue[pb.RenderDocumentRequest | None] = asyncio.Queue()
        self.call = preprocess_pb2_grpc.PageServiceStub(channel).RenderDocument(self._send(), timeout=120)

    def send(self, **message: object) -> None:
        self._requests.put_nowait(pb.RenderDocumentRequest(**message))

    def upload(self, data: bytes, piece: int = 1 << 18) -> None:
        for start in range(0, len(data), piece):
            self.send(chunk=data[start : start + piece])
        self.send(upload_end=pb.UploadEnd())

    def half_close(self) -> None:
        self._requests.put_nowait(None)

    async def answer(self) -> pb.RenderDocumentResponse:
        async with asyncio.timeout(60):
            answer = await self.call.read()
        assert isinstance(answer, pb.RenderDocumentResponse)
        return answer

    async def _send(self) -> AsyncIterator[pb.RenderDocumentRequest]:
        while (request := await self._requests.get()) is not None:
            yield request


async def render(
    service: PreprocessProcess,
    document: bytes | Path,
    *,
    pages: Sequence[tuple[int, int]] = (),
    shared_memory: Path | None = None,
    keep_pixels: bool = False,
    **options: object,
) -> Rendering:
    """Render a document as a good caller does: read each page, check its pixels, release it."""
    data = document.read_bytes() if isinstance(document, Path) else document
    ranges = [pb.PageRange(first=first, last=last) for first, last in pages]
    rendering = Rendering()
    async with service.channel() as channel:
        caller = Caller(channel)
        caller.send(options=pb.RenderOptions(pages=ranges, **options))
        caller.upload(data)
        try:
            async for answer in caller.call:
                match answer.WhichOneof("message"):
                    case "opened":
                        rendering.opened = answer.opened
                    case "page":
                        image = answer.page.image
                        read = pixels(image, shared_memory or service.shared_memory)
                        if keep_pixels:
                            image.inline = read.tobytes()
                        else:
                            image.ClearField("data")
                        rendering.pages.append(answer.page)
                        caller.send(release=pb.PageRelease(page_number=image.page_number))
                    case "failure":
                        rendering.failures.append(answer.failure)
                    case _:
                        rendering.finished = True
        except grpc.aio.AioRpcError as error:
            rendering.error = from_rpc_error(error, "preprocess")
        caller.half_close()
    return rendering

"""Real stacks of real processes, started as a user starts them: `affidavit up`."""

import asyncio
import hashlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from affidavit.ingress.v1 import document_pb2 as pb
from affidavit.ingress.v1 import document_pb2_grpc
from affidavit.libs.rpc import connect
from affidavit.tools.stack import stackfile
from affidavit.tools.stack.stackfile import RunningService, RunningStack

ROOT = Path(__file__).resolve().parents[2]
AFFIDAVIT = [sys.executable, "-m", "affidavit.tools.cli"]
LETTER = ROOT / "examples" / "letter-scan.pdf"
START_TIMEOUT_S = 120


@dataclass
class Stack:
    """A running `affidavit up`."""

    process: subprocess.Popen[str]
    home: Path
    environment: dict[str, str]
    runtime: Path

    def read(self) -> RunningStack:
        """What stack.json says now."""
        before = os.environ.get("AFFIDAVIT_RUNTIME")
        os.environ["AFFIDAVIT_RUNTIME"] = str(self.runtime)
        try:
            stack = stackfile.read()
        finally:
            if before is None:
                del os.environ["AFFIDAVIT_RUNTIME"]
            else:
                os.environ["AFFIDAVIT_RUNTIME"] = before
        assert stack is not None, "no stack is running"
        return stack

    def service(self, name: str) -> RunningService:
        return next(s for s in self.read().services if s.name == name)

    @property
    def log_key(self) -> Path:
        return self.home / "keys" / "log.pub"

    def log(self, name: str) -> str:
        return (self.runtime / "logs" / f"{name}.log").read_text("utf-8", "replace")

    def metrics(self, name: str) -> dict[str, float]:
        """A service's Prometheus page: sample (name and labels) to value."""
        address = self.service(name).metrics_address
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page:
            lines = page.read().decode().splitlines()
        return {k: float(v) for k, _, v in (line.rpartition(" ") for line in lines if line and line[0] != "#")}

    def run(self, *arguments: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        """`affidavit …` against this stack."""
        return subprocess.run(
            [*AFFIDAVIT, *arguments], env=self.environment, input=stdin, capture_output=True, timeout=300, check=False
        )

    @asynccontextmanager
    async def client(self) -> AsyncIterator[document_pb2_grpc.DocumentServiceStub]:
        async with connect(self.service("ingress").address) as channel:
            yield document_pb2_grpc.DocumentServiceStub(channel)

    def stop(self) -> int:
        """Ctrl-C; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=60)


def free_port_base() -> int:
    """A base whose ports, and their metrics pages, are free now."""
    for _ in range(100):
        base = random.randrange(20_000, 30_000, 20)
        try:
            for port in [*range(base, base + 6), *range(base + 1000, base + 1006), base + 102, base + 1102]:
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return base
    raise AssertionError("no free ports")


@contextmanager
def running_stack(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> Iterator[Stack]:
    """`affidavit up` on a data folder of its own, ready."""
    home, runtime = folder / "home", folder / "run"
    runtime.mkdir(parents=True, exist_ok=True)
    base = free_port_base()
    shm = "/dev/shm/affidavit-test-" + hashlib.sha256(str(folder).encode()).hexdigest()[:12]
    env = {
        **os.environ,
        "AFFIDAVIT_HOME": str(home),
        "AFFIDAVIT_RUNTIME": str(runtime),
        "AFFIDAVIT_SHM": shm,
        "COLUMNS": "200",
        **(environment or {}),
    }
    env.pop("AFFIDAVIT_ADDRESS", None)
    command = [*AFFIDAVIT, "up", "--port-base", str(base), *arguments]
    with (folder / "up.log").open("w") as log:
        process = subprocess.Popen(command, env=env, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True)
    stack = Stack(process, home, env, runtime)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("Ctrl-C stops"):
                break
        else:
            raise AssertionError("the stack did not start:\n" + (folder / "up.log").read_text())
        yield stack
    finally:
        stack.stop()
        killed = process.returncode == -signal.SIGKILL
        if Path(shm).is_dir():
            left = [p.name for p in Path(shm).iterdir()]
            shutil.rmtree(shm)
            assert killed or not left, f"leases were leaked: {left}"


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One stack that many tests share; none of them may break it."""
    with running_stack(tmp_path_factory.mktemp("stack")) as running:
        yield running


@dataclass
class Answer:
    """What a call answered, in order."""

    messages: list[pb.RecognizeDocumentResponse] = field(default_factory=list)

    @property
    def pages(self) -> list[pb.PageResult]:
        return [m.page for m in self.messages if m.WhichOneof("message") == "page"]

    @property
    def completed(self) -> pb.Completed:
        assert self.messages[-1].WhichOneof("message") == "completed"
        return self.messages[-1].completed

    @property
    def result(self) -> bytes:
        prefix = next(m.accepted.result_prefix for m in self.messages if m.WhichOneof("message") == "accepted")
        return prefix + b",".join(p.result for p in self.pages) + self.completed.result_suffix

    def text(self) -> str:
        return "\n".join(line.text for page in self.pages for line in page.text.lines)


async def recognize(
    stub: document_pb2_grpc.DocumentServiceStub,
    data: bytes,
    options: pb.RecognizeOptions | None = None,
    *,
    metadata: tuple[tuple[str, str], ...] = (),
    on_message: Callable[[pb.RecognizeDocumentResponse], None] = lambda _: None,
    answer: Answer | None = None,
    timeout: float = 300,
) -> Answer:
    """One whole call. `answer` collects what arrived also when the call fails."""
    answer = answer if answer is not None else Answer()

    async def requests():
        yield pb.RecognizeDocumentRequest(options=options or pb.RecognizeOptions())
        for start in range(0, len(data), 256 * 1024):
            yield pb.RecognizeDocumentRequest(chunk=data[start : start + 256 * 1024])

    async for message in stub.RecognizeDocument(requests(), metadata=metadata, timeout=timeout):
        answer.messages.append(message)
        on_message(message)
    return answer


async def until(condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    """Wait for a state of another process."""
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not within {timeout_s} s: {what}") from None

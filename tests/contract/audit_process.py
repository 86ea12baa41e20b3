"""The audit service as a process of its own, and records to give it."""

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from affidavit.audit.v1 import audit_pb2, audit_pb2_grpc
from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.evidence.commitment import commit
from affidavit.libs.evidence.keys import load_public_key
from affidavit.libs.evidence.note import TreeHead
from affidavit.libs.evidence.receipt import VerifiedReceipt, verify_receipt
from affidavit.libs.rpc import connect

DEADLINE_S = 60


def salt_of(request_id: str, step: str = "single") -> bytes:
    return hashlib.sha256(f"salt {request_id} {step}".encode()).digest()


def result_of(request_id: str, step: str = "single") -> bytes:
    return f'{{"text":"{request_id} {step}"}}'.encode()


def item(
    request_id: str, step: str = "single", sequence: int = 0, content: bytes = b"", **fields
) -> audit_pb2.AppendItem:
    """A page's record; the same arguments give the same item."""
    salt = salt_of(request_id, step)
    draft = {
        "tenant": "default",
        "request_id": request_id,
        "kind": evidence_pb2.RECORD_KIND_PAGE,
        "phase": evidence_pb2.RECORD_PHASE_SINGLE,
        "input_commitment": commit(salt, b"input"),
        "options_json": b'{"dpi":200}',
        "output_commitment": commit(salt, result_of(request_id, step)),
        "status": "ok",
    } | fields
    return audit_pb2.AppendItem(
        sequence=sequence,
        step=step,
        content_digest=hashlib.sha256(b"content" + content).digest(),
        draft=evidence_pb2.RecordDraft(**draft),
        salt=salt,
    )


class AuditProcess:
    """A running `python -m affidavit.services.audit`."""

    def __init__(
        self,
        home: Path,
        *flags: str,
        address: str = "",
        file_size_limit: int = 0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment` is added to this process's own."""
        self.home = home
        self.address = address or f"unix:{home}.sock"
        self._errors = home.with_name(home.name + ".stderr")
        arguments = [
            sys.executable,
            "-m",
            "affidavit.services.audit",
            "--home",
            home,
            "--address",
            self.address,
            *flags,
        ]
        if file_size_limit:  # by a program of its own: what runs between fork and exec would meet this process's gRPC
            arguments = ["prlimit", f"--fsize={file_size_limit}:", *arguments]
        home.mkdir(parents=True, exist_ok=True)
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [*map(str, arguments)], stderr=errors, env={**os.environ, **(environment or {})}
            )

    @property
    def store(self) -> Path:
        return self.home / "audit" / "store"

    @property
    def key(self) -> Ed25519PublicKey:
        return self.key_of(self.home)

    @staticmethod
    def key_of(home: Path) -> Ed25519PublicKey:
        return load_public_key(home / "keys" / "log.pub")

    def stderr(self) -> str:
        return self._errors.read_text()

    @asynccontextmanager
    async def stub(self) -> AsyncIterator[audit_pb2_grpc.AuditServiceStub]:
        """A stub that has reached the service; fails with its words if the process ended instead."""
        async with connect(self.address) as channel, asyncio.timeout(DEADLINE_S):
            stub = audit_pb2_grpc.AuditServiceStub(channel)
            call = asyncio.ensure_future(stub.GetCheckpoint(audit_pb2.GetCheckpointRequest(), wait_for_ready=True))
            ended = asyncio.ensure_future(self._exited())
            await asyncio.wait([call, ended], return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                call.cancel()
                raise AssertionError(f"audit ended with {self.process.returncode}: {self.stderr()[-2000:]}")
            try:
                yield stub
            finally:
                ended.cancel()

    async def _exited(self) -> None:
        """Wait for the process's end, without a thread that would have to be waited for."""
        if self.process.poll() is not None:
            return
        descriptor = os.pidfd_open(self.process.pid)
        exited = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(descriptor, exited.set)
        try:
            await exited.wait()
            self.process.wait(DEADLINE_S)
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE_S)

    def ended(self) -> tuple[int, str]:
        """Exit code and last line of a process that ends by itself."""
        code = self.process.wait(DEADLINE_S)
        return code, self.stderr().strip().splitlines()[-1]

    def verify(self, receipt: evidence_pb2.Receipt, request_id: str = "", step: str = "single") -> VerifiedReceipt:
        """Verify a receipt offline, with its result when it is of `item(request_id, step)`."""
        result = result_of(request_id, step) if request_id else None
        verified = verify_receipt(receipt, self.key, result=result)
        assert not request_id or verified.leaf.request_id == request_id
        return verified


async def append(
    stub: audit_pb2_grpc.AuditServiceStub, messages: Sequence[Sequence[audit_pb2.AppendItem]]
) -> list[audit_pb2.AppendResult]:
    """Send `messages` in one stream, half-close, and return every result, in the order of arrival."""
    requests = [audit_pb2.AppendRecordsRequest(items=items) for items in messages]
    return [result async for response in stub.AppendRecords(iter(requests)) for result in response.results]


async def append_one(stub: audit_pb2_grpc.AuditServiceStub, item: audit_pb2.AppendItem) -> audit_pb2.AppendResult:
    (result,) = await append(stub, [[item]])
    return result


async def head(stub: audit_pb2_grpc.AuditServiceStub) -> TreeHead:
    answer = await stub.GetCheckpoint(audit_pb2.GetCheckpointRequest())
    return TreeHead.parse(answer.checkpoint.note.decode().rpartition("\n\n")[0] + "\n")

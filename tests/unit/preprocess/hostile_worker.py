"""A worker that was taken over: it is confined like the real one and then does what its document says.

The document is one word, the name of a deed below. A deed that the kernel refuses ends in DAMAGED_DOCUMENT; one that it
allows in a document of three pages. Drawing page 2 of "page-two-dies" kills the worker.
"""

import ctypes
import mmap
import os
import signal
import socket
import sys

from affidavit.services.preprocess import protocol
from affidavit.services.preprocess.protocol import Closed, Draw, Drawn, Open, Opened, Ready, Refused, WorkerLimits
from affidavit.services.preprocess.worker import sandbox
from affidavit.services.preprocess.worker.__main__ import receive

libc = ctypes.CDLL(None, use_errno=True)


def refused_if(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")


def loop() -> None:
    while True:
        pass


DEEDS = {
    "nothing": lambda: None,
    "page-two-dies": lambda: None,
    "socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).close(),
    "unix-socket": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).close(),
    "read-file": lambda: open("/etc/passwd").close(),
    "write-file": lambda: open("/tmp/affidavit-hostile", "w").close(),
    "list-folder": lambda: os.listdir("/"),
    "fork": os.fork,
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "kill-parent": lambda: os.kill(os.getppid(), signal.SIGTERM),
    "trace-parent": lambda: refused_if(libc.ptrace(16, os.getppid(), 0, 0)),
    "executable-memory": lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close(),
    "new-namespace": lambda: refused_if(libc.unshare(0x10000000)),
    "lift-limit": lambda: __import__("resource").setrlimit(__import__("resource").RLIMIT_AS, (-1, -1)),
    "write-document": lambda: os.ftruncate(descriptor, 0),
    "cut-area": lambda: os.ftruncate(area, 0),
    "allocate": lambda: bytearray(4 << 30),
    "loop": loop,
    "exit": lambda: os._exit(0),
    "crash": lambda: ctypes.string_at(0),
    "nonsense": lambda: channel.send(b"\xff" * 100),
    "flood": lambda: [channel.send(b"x" * 60_000) for _ in range(1000)],
}

channel_fd, area_fd, parent, limits_json = sys.argv[1:]
sandbox.die_with(int(parent))
limits = WorkerLimits.from_json(limits_json)
channel, area = socket.socket(fileno=int(channel_fd)), int(area_fd)
pixels = mmap.mmap(area, limits.area_bytes)
features = sandbox.confine(limits)
channel.send(protocol.encode(Ready(features, "hostile", "hostile")))
deed, descriptor = "", -1
while True:
    request, received = receive(channel)
    match request:
        case None:
            os._exit(0)
        case Open():
            descriptor = received
            deed = os.pread(descriptor, 100, 0).decode()
            try:
                DEEDS[deed]()
                reply = Opened(3, "application/pdf")
            except OSError:
                reply = Refused("DAMAGED_DOCUMENT")
        case Draw(page):
            if (deed, page) == ("page-two-dies", 1):
                ctypes.string_at(0)
            pixels[:100] = bytes([page]) * 100
            reply = Drawn(10, 10, 1, 1000, 1000, 0)
        case _:
            reply = Closed()
    channel.send(protocol.encode(reply))

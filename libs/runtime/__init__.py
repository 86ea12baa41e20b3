"""Where things are: ports, addresses, the data folder, the shared-memory folder. Rules only, nothing is opened here."""

import ctypes
import os
import signal
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

PORTS = {"ingress": 7440, "preprocess": 7441, "ocr": 7442, "embedding": 7443, "llm": 7444, "audit": 7445}
METRICS_OFFSET = 1000

_PR_SET_PDEATHSIG = 1  # linux/prctl.h

# The main service of each process: its health name is readiness, "" is liveness.
SERVICE_NAMES = {
    "ingress": "affidavit.ingress.v1.DocumentService",
    "preprocess": "affidavit.preprocess.v1.PageService",
    "ocr": "affidavit.ocr.v1.OcrService",
    "audit": "affidavit.audit.v1.AuditService",
}


def software(service: str) -> str:
    """Program and version as records name it: "affidavit-ocr 0.1.0"."""
    return f"affidavit-{service} {version('affidavit')}"


def default_address(service: str) -> str:
    """Loopback address of a service's default port."""
    return f"127.0.0.1:{PORTS[service]}"


@dataclass(frozen=True)
class DataFolder:
    """The layout of `$AFFIDAVIT_HOME`."""

    root: Path

    @classmethod
    def default(cls) -> "DataFolder":
        home = os.environ.get("AFFIDAVIT_HOME")
        return cls(Path(home) if home else Path.home() / ".local" / "share" / "affidavit")

    @property
    def audit(self) -> Path:
        return self.root / "audit"

    @property
    def keys(self) -> Path:
        return self.root / "keys"

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def spool(self) -> Path:
        return self.root / "spool"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def log_public_key(self) -> Path:
        return self.keys / "log.pub"


def runtime_folder() -> Path:
    """Folder of `stack.json`, lock files and sockets: `$AFFIDAVIT_RUNTIME`, else `$XDG_RUNTIME_DIR`, else per user in
    the temporary folder."""
    if explicit := os.environ.get("AFFIDAVIT_RUNTIME"):
        return Path(explicit)
    base = os.environ.get("XDG_RUNTIME_DIR")
    return Path(base) / "affidavit" if base else Path(os.environ.get("TMPDIR", "/tmp")) / f"affidavit-{os.getuid()}"


def shared_memory_folder() -> Path:
    """Folder of page images that services on one host hand each other: `$AFFIDAVIT_SHM`, else under /dev/shm."""
    return Path(os.environ.get("AFFIDAVIT_SHM") or f"/dev/shm/affidavit-{os.getuid()}")


def engine_threads() -> int:
    """Threads that this process's engine may use: `$AFFIDAVIT_THREADS`, else every core it may run on."""
    return int(os.environ.get("AFFIDAVIT_THREADS") or len(os.sched_getaffinity(0)))


def die_with_parent() -> None:
    """Ask the kernel to SIGKILL this process when its parent dies, if `$AFFIDAVIT_PARENT_PID` names that parent.

    A supervisor that is itself SIGKILLed then leaves no orphan. Every service is crash-safe, so SIGKILL loses nothing
    that was acknowledged, and unlike SIGTERM it cannot be held up by a stuck event loop.
    """
    parent = os.environ.get("AFFIDAVIT_PARENT_PID")
    if not parent:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != int(parent):  # it died before we asked
        os.kill(os.getpid(), signal.SIGKILL)

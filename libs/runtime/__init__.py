"""Where things are: ports, addresses, the data folder, the shared-memory folder. Rules only, nothing is opened here."""

import os
from dataclasses import dataclass
from pathlib import Path

PORTS = {"ingress": 7440, "preprocess": 7441, "ocr": 7442, "embedding": 7443, "llm": 7444, "audit": 7445}
METRICS_OFFSET = 1000

# The main service of each process: its health name is readiness, "" is liveness.
SERVICE_NAMES = {
    "ingress": "affidavit.ingress.v1.DocumentService",
    "preprocess": "affidavit.preprocess.v1.PageService",
    "ocr": "affidavit.ocr.v1.OcrService",
    "audit": "affidavit.audit.v1.AuditService",
}


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

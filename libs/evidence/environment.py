"""The facts of the machine and software that answers depend on: the body of an `environment` record.

Two answers can only be bitwise the same where these are; a changed fact is a new record. No floats, nothing secret,
nothing that changes from minute to minute.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
from pathlib import Path

from affidavit.libs.canonicaljson import Json

# What changes the arithmetic of the engines: vector width, fused multiply-add, low-precision dot products and tiles.
_ISA_PREFIXES = ("avx", "amx", "sve")
_ISA_FLAGS = frozenset({"sse4_1", "sse4_2", "fma", "f16c", "asimd", "asimddp", "bf16", "i8mm", "sme", "sme2"})

PACKAGES = (
    "affidavit",
    "cryptography",
    "grpcio",
    "numpy",
    "onnxruntime",
    "opencv-python-headless",
    "pillow",
    "protobuf",
    "pypdfium2",
    "rocksdict",
)


def environment_facts() -> dict[str, Json]:
    """Facts of this process's machine and software, ready for `canonicaljson.dumps`; absent ones are null."""
    cpu, flags = _cpu()
    return {
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "cpu": cpu,
        "gpus": _gpus(),
        "isa": [flag for flag in sorted(flags) if flag in _ISA_FLAGS or flag.startswith(_ISA_PREFIXES)],
        "kernel": platform.release(),
        "native_sha256": _file_hash("affidavit._native"),
        "nvidia_driver": _first_line(Path("/proc/driver/nvidia/version")),
        "os": _os_name(),
        "packages": {name: _version(name) for name in PACKAGES},
        "pdfium": _pdfium_build(),
        "pdfium_sha256": _file_hash("pypdfium2_raw", "libpdfium.so"),
        "python": platform.python_version(),
        "usable_cores": len(os.sched_getaffinity(0)),
    }


def _cpu() -> tuple[str | None, frozenset[str]]:
    model: str | None = None
    flags: frozenset[str] = frozenset()
    for line in _lines(Path("/proc/cpuinfo")):
        name, _, value = (part.strip() for part in line.partition(":"))
        if name == "model name" and model is None:
            model = value
        if name in ("flags", "Features") and not flags:
            flags = frozenset(value.split())
    return model, flags


def _gpus() -> list[Json]:
    """UUIDs of NVIDIA GPUs, from the driver itself: no library is loaded for it."""
    uuids: list[str] = []
    for path in Path("/proc/driver/nvidia/gpus").glob("*/information"):
        uuids += [line.partition(":")[2].strip() for line in _lines(path) if line.startswith("GPU UUID")]
    return [*sorted(uuids)]


def _os_name() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _pdfium_build() -> str | None:
    """`major.minor.build.patch`, from the file that the wheel carries."""
    spec = importlib.util.find_spec("pypdfium2_raw")
    if spec is None or spec.origin is None:
        return None
    try:
        version: dict[str, int] = json.loads((Path(spec.origin).parent / "version.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return ".".join(str(version.get(part)) for part in ("major", "minor", "build", "patch"))


def _file_hash(module: str, beside: str = "") -> str | None:
    """SHA-256 of a module's file, or of a file of its folder. Found without importing it: PDFium parses strangers'
    files and is loaded in the sandbox alone."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / beside if beside else Path(spec.origin)
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _first_line(path: Path) -> str | None:
    lines = _lines(path)
    return lines[0] if lines else None

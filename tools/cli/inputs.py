"""Which files a command line names, and where each answer goes."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = {".pdf", ".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp"}
STDIN = Path("-")


class UsageFault(Exception):
    """The command line cannot be carried out; the message says why."""


@dataclass(frozen=True)
class Input:
    """One document to read."""

    path: Path  # STDIN for standard input
    stem: str  # of its outputs, unique among the inputs, may have folders in it

    @property
    def name(self) -> str:
        return "standard input" if self.path == STDIN else str(self.path)


def find_inputs(arguments: Sequence[Path]) -> list[Input]:
    """Files as given; folders searched for documents by suffix, in order of their names.

    Raises:
        UsageFault: a path is missing, a folder has no documents, or `-` is given twice.
    """
    found: list[tuple[Path, Path]] = []  # path, and its name in an output folder
    for argument in arguments:
        if argument == STDIN:
            found.append((argument, Path("stdin")))
        elif argument.is_dir():
            inside = sorted(p for p in argument.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
            if not inside:
                raise UsageFault(f"{argument} has no documents ({' '.join(sorted(SUFFIXES))})")
            found += [(p, p.relative_to(argument)) for p in inside]
        elif argument.exists():
            found.append((argument, Path(argument.name)))
        else:
            raise UsageFault(f"{argument} does not exist")
    if sum(path == STDIN for path, _ in found) > 1:
        raise UsageFault("standard input can be read once")
    stems = [str(name.with_suffix("")) for _, name in found]
    inputs: list[Input] = []
    taken: set[str] = set()
    for (path, name), stem in zip(found, stems, strict=True):
        # a.pdf beside a.png: both keep their suffix. The same name from two folders: numbered.
        unique = base = stem if stems.count(stem) == 1 else str(name)
        number = 1
        while unique in taken:
            number += 1
            unique = f"{base}-{number}"
        taken.add(unique)
        inputs.append(Input(path, unique))
    return inputs


@dataclass(frozen=True)
class Destination:
    """Where answers go: standard output, one file, or a folder."""

    format: str  # "text" or "json"
    file: Path | None = None
    folder: Path | None = None
    receipt_file: Path | None = None

    def result_path(self, source: Input) -> Path | None:
        suffix = ".json" if self.format == "json" else ".txt"
        return self.folder / f"{source.stem}{suffix}" if self.folder else self.file

    def receipt_path(self, source: Input) -> Path | None:
        return self.folder / f"{source.stem}.receipt.json" if self.folder else self.receipt_file


def destination(inputs: Sequence[Input], out: Path | None, format: str | None, receipt: Path | None) -> Destination:
    """Decide before any work is done, so that nothing is lost to a path that cannot be written.

    Raises:
        UsageFault: several inputs for one file, or a place that cannot be written to.
    """
    if format not in (None, "text", "json"):
        raise UsageFault(f"--format {format}: text or json")
    if receipt and len(inputs) > 1:
        raise UsageFault("--receipt names one file, and there are several inputs; use -o FOLDER")
    if receipt:
        _check_writable(receipt)
    if out is None:
        return Destination(format or "text", receipt_file=receipt)
    as_folder = out.is_dir() or len(inputs) > 1 or str(out).endswith(os.sep)
    if not as_folder:
        _check_writable(out)
        return Destination(format or ("json" if out.suffix == ".json" else "text"), file=out, receipt_file=receipt)
    if receipt:
        raise UsageFault("-o names a folder, where receipts are written too; leave --receipt out")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageFault(f"{out}: {error.strerror}") from None
    _check_writable(out / "x")
    return Destination(format or "json", folder=out)


def write_atomically(path: Path, data: bytes) -> None:
    """The whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _check_writable(path: Path) -> None:
    if path.is_dir():
        raise UsageFault(f"{path} is a folder")
    if not path.parent.is_dir():
        raise UsageFault(f"{path.parent} is no folder")
    if not os.access(path.parent, os.W_OK):
        raise UsageFault(f"{path.parent} cannot be written to")

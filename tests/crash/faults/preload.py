"""Building the shim, and the environment of a process that lives on its disk."""

import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

SOURCES = sorted(Path(__file__).parent.glob("*.c"))


@cache
def shim() -> Path:
    """The shared object, built once a test session."""
    library = Path(mkdtemp(prefix="affidavit-faults-")) / "shim.so"
    command = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-fvisibility=hidden"]
    subprocess.run([*command, "-o", str(library), *map(str, SOURCES), "-ldl"], check=True)
    return library


@dataclass(frozen=True)
class Faults:
    """What the disk below `root` does to a process; its journal is written to `journal`."""

    root: Path
    journal: Path
    cut: int = 0  # the process dies at this change or sync, counted from 1
    short: int = 0  # seed of short writes
    failing_sync: str = ""  # `text:n`: the n-th sync of a file whose path contains the text
    full: Path | None = None  # the disk is full while this file exists

    def environment(self) -> dict[str, str]:
        """The environment variables to add."""
        values = {
            "LD_PRELOAD": shim(),
            "FAULTS_ROOT": self.root,
            "FAULTS_JOURNAL": self.journal,
            "FAULTS_CUT": self.cut or None,
            "FAULTS_SHORT": self.short or None,
            "FAULTS_EIO": self.failing_sync or None,
            "FAULTS_FULL": self.full,
        }
        return {name: str(value) for name, value in values.items() if value is not None}

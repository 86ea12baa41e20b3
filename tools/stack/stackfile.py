"""`stack.json` in the runtime folder: what runs, where, since when. Always checked against the living before use."""

import fcntl
import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from affidavit.libs.runtime import runtime_folder

VERSION = 1


@dataclass(frozen=True)
class RunningService:
    name: str
    service: str
    address: str
    metrics_address: str
    pid: int


@dataclass(frozen=True)
class RunningStack:
    """A stack that its supervisor says is up."""

    supervisor_pid: int
    supervisor_started: int  # clock ticks since boot, so that a recycled pid is told apart
    started: str  # RFC 3339
    home: str  # data folder
    private: bool  # lives only as long as the command that started it
    services: list[RunningService]

    @property
    def address(self) -> str:
        """Where clients connect."""
        return next(s.address for s in self.services if s.service == "ingress")

    def address_of(self, service: str) -> str:
        """Where a service of this stack listens."""
        return next(s.address for s in self.services if s.service == service)

    def alive(self) -> bool:
        return process_start(self.supervisor_pid) == self.supervisor_started


def process_start(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; None when there is none (proc(5), field 22)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def stack_path() -> Path:
    return runtime_folder() / "stack.json"


def write(stack: RunningStack) -> None:
    path = stack_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps({"v": VERSION, **asdict(stack)}, indent=1), "utf-8")
    temporary.replace(path)


def remove() -> None:
    stack_path().unlink(missing_ok=True)


def read() -> RunningStack | None:
    """The stack that runs now; None when none does (a file left by a dead one counts as none)."""
    try:
        content: dict[str, Any] = json.loads(stack_path().read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if content.pop("v", None) != VERSION:
        return None
    services = [RunningService(**s) for s in content.pop("services")]
    stack = RunningStack(services=services, **content)
    return stack if stack.alive() else None


class StackHeld(Exception):
    """Another stack has this data folder; the message says which."""


@contextmanager
def hold(home: Path) -> Generator[None]:
    """Be the only stack on a data folder while the context lasts.

    Raises:
        StackHeld: another one is.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (home / "stack.lock").open("a+") as lock:
        if not _try_lock(lock, fcntl.LOCK_EX):
            lock.seek(0)
            holder = lock.read().strip() or "an unknown process"
            raise StackHeld(f"{home} is in use by another affidavit stack (supervisor pid {holder})")
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


@contextmanager
def use(stack: RunningStack) -> Generator[None]:
    """Keep a private stack up while the context lasts: its owner waits for its users before it stops."""
    with _users_file(stack).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


def wait_for_users(stack: RunningStack) -> None:
    """Block until nobody else uses this private stack."""
    with _users_file(stack).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)


def _users_file(stack: RunningStack) -> Path:
    return runtime_folder() / f"users-{stack.supervisor_pid}.lock"


def _try_lock(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

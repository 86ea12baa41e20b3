"""A stack for one command: `$AFFIDAVIT_ADDRESS`, else the one that runs here, else a private one for the command's life."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from affidavit.libs.runtime import DataFolder, runtime_folder
from affidavit.tools.stack import plan, stackfile
from affidavit.tools.stack.stackfile import RunningStack, StackHeld
from affidavit.tools.stack.supervisor import Report, Supervisor

JOIN_TIMEOUT_S = 120.0
MAX_SOCKET_FOLDER = 80  # a unix socket's path has room for 107 bytes


@dataclass(frozen=True)
class Session:
    """Where a command's calls go."""

    address: str
    data: DataFolder | None  # None for a stack elsewhere, whose keys are not ours
    stack: RunningStack | None


@asynccontextmanager
async def session(report: Report) -> AsyncGenerator[Session]:
    """Find a stack, or start one and stop it at the end.

    Raises:
        StackHeld: the data folder is in use by a stack that cannot be joined.
        StartFailed: a private stack did not come up.
    """
    if address := os.environ.get("AFFIDAVIT_ADDRESS"):
        yield Session(address, None, None)
        return
    data = DataFolder.default()
    if stack := stackfile.read():
        async with _joined(stack, data) as joined:
            yield joined
        return
    try:
        with stackfile.hold(data.root):
            async with private_stack(data, report) as own:
                yield own
            return
    except StackHeld:
        stack = await _coming_up()
        if stack is None:
            raise
    async with _joined(stack, data) as joined:
        yield joined


@asynccontextmanager
async def audit_session(report: Report) -> AsyncGenerator[tuple[str, DataFolder]]:
    """Address of the evidence log and its data folder: `$AFFIDAVIT_AUDIT_ADDRESS`, else the stack that runs here, else the
    audit service alone, for the command's life.

    Raises:
        StackHeld: the data folder is in use by a stack that cannot be joined.
        StartFailed: the service did not come up.
    """
    data = DataFolder.default()
    if address := os.environ.get("AFFIDAVIT_AUDIT_ADDRESS"):
        yield address, data
    elif stack := stackfile.read():
        async with _joined(stack, data):
            yield stack.address_of("audit"), data
    else:
        with stackfile.hold(data.root), _socket_folder("audit") as sockets:
            plan_ = plan.on_sockets(sockets, data, only=("audit",))
            logs = runtime_folder() / "logs"
            # Not announced in stack.json: a command that joined it would find no ingress.
            async with Supervisor(plan_, data, logs, report=report, private=True, announced=False) as own:
                yield own.address_of("audit"), data


@contextmanager
def _socket_folder(name: str) -> Generator[Path]:
    folder = runtime_folder() / f"{name}-{os.getpid()}"
    if len(bytes(folder)) > MAX_SOCKET_FOLDER:
        folder = Path(tempfile.mkdtemp(prefix="affidavit-"))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def private_stack(data: DataFolder, report: Report) -> AsyncGenerator[Session]:
    """A stack on unix sockets that ends with the context, once its other users have left."""
    logs = runtime_folder() / "logs"
    with _socket_folder("sockets") as sockets:
        async with Supervisor(plan.on_sockets(sockets, data), data, logs, report=report, private=True) as stack:
            yield Session(stack.address, data, stack)
            await asyncio.to_thread(stackfile.wait_for_users, stack)


@asynccontextmanager
async def _joined(stack: RunningStack, data: DataFolder) -> AsyncGenerator[Session]:
    if Path(stack.home) != data.root:
        raise StackHeld(
            f"a stack is running here on another data folder, {stack.home} (supervisor pid {stack.supervisor_pid}); "
            "stop it with `affidavit down`, or set AFFIDAVIT_RUNTIME to a folder of its own"
        )
    if not stack.private:
        yield Session(stack.address, data, stack)
        return
    with stackfile.use(stack):
        yield Session(stack.address, data, stack)


async def _coming_up() -> RunningStack | None:
    """The stack that another command is just starting on this data folder."""
    try:
        async with asyncio.timeout(JOIN_TIMEOUT_S):
            while (stack := stackfile.read()) is None:
                await asyncio.sleep(0.1)
                try:
                    with stackfile.hold(DataFolder.default().root):
                        return None  # it has gone again
                except StackHeld:
                    pass
    except TimeoutError:
        return None
    return stack

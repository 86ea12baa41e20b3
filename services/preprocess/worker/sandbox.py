"""Gives up every right that parsing does not need. What the kernel refuses to take is left out of the answer.

Order matters: namespaces before limits (a new process is none of ours), privileges before the filter (which forbids
everything that this file does).
"""

import ctypes
import os
import resource
import signal
from collections.abc import Callable

from affidavit.services.preprocess.protocol import WorkerLimits
from affidavit.services.preprocess.worker import seccomp

_CLONE_NEWNS = 0x00020000
_CLONE_NEWIPC = 0x08000000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION_3 = 0x20080522

# What a complete sandbox is made of.
FEATURES = ("namespaces", "limits", "no_new_privileges", "no_capabilities", "system_calls")

_libc = ctypes.CDLL(None, use_errno=True)


def die_with(parent: int) -> None:
    """Be killed when the parent dies, even when that is before this call."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def confine(limits: WorkerLimits) -> tuple[str, ...]:
    """Confine this process, for good. Call it after all imports, before the first document.

    Returns:
        those of `FEATURES` that are in force.
    """
    steps: dict[str, Callable[[], None]] = {
        "namespaces": _leave_namespaces,
        "limits": lambda: _limit(limits),
        "no_new_privileges": _refuse_privileges,
        "no_capabilities": _drop_capabilities,
        "system_calls": lambda: seccomp.install(_libc),
    }
    in_force: list[str] = []
    for name, step in steps.items():
        try:
            step()
        except (OSError, NotImplementedError):
            continue
        in_force.append(name)
    return tuple(in_force)


def _leave_namespaces() -> None:
    """A network of its own without any interface. With a user namespace, which needs no privilege and gives away those
    that the process has; without one where the kernel grants that."""
    apart = _CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWNS
    if _libc.unshare(_CLONE_NEWUSER | apart) != 0 and _libc.unshare(apart) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def _limit(limits: WorkerLimits) -> None:
    size = {line.split(":")[0]: line.split()[1] for line in _status() if line.startswith(("VmSize", "VmData"))}
    data = (int(size["VmData"]) << 10) + limits.memory_bytes
    space = (int(size["VmSize"]) << 10) + limits.memory_bytes + limits.document_bytes
    for kind, most in (
        (resource.RLIMIT_DATA, data),  # private memory; the mapped document is not counted
        (resource.RLIMIT_AS, space),
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 16),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        resource.setrlimit(kind, (most, most))


def _status() -> list[str]:
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        return status.readlines()


def _refuse_privileges() -> None:
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_SET_DUMPABLE, 0)


def _drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    if _libc.capset(header, nothing) != 0:
        raise OSError(ctypes.get_errno(), "capset")
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # the kernel forgets it when credentials change


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")

"""The system calls that a confined worker may make: a seccomp-bpf filter, written by hand.

A list of what is allowed, and not of what is forbidden: reading files that are already open, memory that is not
executable, time, its one socket. Anything else, such as opening a file, a socket, a process or another process's
memory, fails with EPERM. (EPERM and not death: libc probes for calls that it can do without.)

Source: seccomp(2), <linux/filter.h>, <linux/audit.h>, <asm/unistd_64.h>, <asm-generic/unistd.h>.
"""

import ctypes
import errno
import os
import struct

_ALLOWED = {
    # name: (x86-64, aarch64); None where the architecture has no such call
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "fstat": (5, 80),
    "poll": (7, None),
    "lseek": (8, 62),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "pread64": (17, 67),
    "readv": (19, 65),
    "writev": (20, 66),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "dup": (32, 23),
    "nanosleep": (35, 101),
    "getpid": (39, 172),
    "sendto": (44, 206),
    "recvfrom": (45, 207),
    "sendmsg": (46, 211),
    "recvmsg": (47, 212),
    "exit": (60, 93),
    "fcntl": (72, 25),
    "gettimeofday": (96, 169),
    "getrusage": (98, 165),
    "sysinfo": (99, 179),
    "times": (100, 153),
    "sigaltstack": (131, 132),
    "gettid": (186, 178),
    "futex": (202, 98),
    "sched_getaffinity": (204, 123),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115),
    "exit_group": (231, 94),
    "newfstatat": (262, 79),  # glibc's fstat
    "ppoll": (271, 73),
    "set_robust_list": (273, 99),
    "dup3": (292, 24),
    "getrandom": (318, 278),
    "membarrier": (324, 283),
    "statx": (332, 291),
    "rseq": (334, 293),
}
# Allowed unless they ask for executable memory (third argument, PROT_EXEC).
_ALLOWED_WITHOUT_EXEC = {"mmap": (9, 222), "mprotect": (10, 226)}

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_PROT_EXEC = 4
_LOAD_WORD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_JUMP_ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K
_KILL = 0x80000000  # SECCOMP_RET_KILL_PROCESS
_ALLOW = 0x7FFF0000  # SECCOMP_RET_ALLOW
_REFUSE = 0x00050000 | errno.EPERM  # SECCOMP_RET_ERRNO

# Offsets into struct seccomp_data; the argument's low half comes first on both (little-endian) architectures.
_NUMBER, _ARCH, _THIRD_ARGUMENT = 0, 4, 16 + 2 * 8

_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def program(machine: str) -> bytes:
    """The filter as an array of struct sock_filter.

    Raises:
        NotImplementedError: no list of system calls for this machine.
    """
    if machine not in _ARCHITECTURES:
        raise NotImplementedError(f"no system call list for {machine}")
    column, arch = _ARCHITECTURES[machine]
    code = [
        (_LOAD_WORD, 0, 0, _ARCH),
        (_JUMP_EQUAL, 1, 0, arch),
        (_RETURN, 0, 0, _KILL),
        (_LOAD_WORD, 0, 0, _NUMBER),
    ]
    for numbers in _ALLOWED.values():
        number = numbers[column]
        if number is not None:
            code += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    for numbers in _ALLOWED_WITHOUT_EXEC.values():
        code += [
            (_JUMP_EQUAL, 0, 4, numbers[column]),
            (_LOAD_WORD, 0, 0, _THIRD_ARGUMENT),
            (_JUMP_ANY_BIT, 0, 1, _PROT_EXEC),
            (_RETURN, 0, 0, _REFUSE),
            (_RETURN, 0, 0, _ALLOW),
        ]
    code.append((_RETURN, 0, 0, _REFUSE))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def install(libc: ctypes.CDLL) -> None:
    """Filter this process's system calls from now on. Needs PR_SET_NO_NEW_PRIVS.

    Raises:
        OSError, NotImplementedError: the kernel or the machine has no filter.
    """
    code = program(os.uname().machine)
    buffer = ctypes.create_string_buffer(code, len(code))
    filter_program = _Program(len(code) // 8, ctypes.addressof(buffer))
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filter_program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_SECCOMP)")

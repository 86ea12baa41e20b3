"""Exit codes, and the one way to end with one."""

import sys
from enum import IntEnum
from typing import NoReturn

import grpc

from affidavit.libs.errors import AffidavitError


class Exit(IntEnum):
    OK = 0
    FAILED = 1  # some page or file failed
    USAGE = 2
    UNAVAILABLE = 3
    UNVERIFIED = 4
    INTERRUPTED = 130  # Ctrl-C, as shells have it


def fail(message: str, code: Exit) -> NoReturn:
    """End the command: one line on standard error."""
    print(f"affidavit: {message}", file=sys.stderr)
    sys.exit(code)


def exit_for(error: AffidavitError) -> Exit:
    """The exit code of a call's error."""
    return Exit.UNAVAILABLE if error.code is grpc.StatusCode.UNAVAILABLE else Exit.FAILED

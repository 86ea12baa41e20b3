"""The way from a command to a log without its service: the audit service's own code, in a process of its own."""

import os
import sys
from typing import NoReturn


def maintain(name: str, *arguments: str) -> NoReturn:
    """Become `python -m affidavit.services.audit.maintenance NAME …`, whose exit code is the command's."""
    command = [sys.executable, "-m", "affidavit.services.audit.maintenance", name, *arguments]
    os.execv(command[0], command)

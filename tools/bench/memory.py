"""Resident memory of a stack's services, from the kernel's own accounts (proc(5))."""

from pathlib import Path

import psutil

from affidavit.tools.stack.stackfile import RunningStack


def family(pid: int) -> list[psutil.Process]:
    """A process and its workers."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def peak_rss_mb(pid: int) -> int:
    """Peak resident memory of a service and its workers, MB (VmHWM); pages they share count for each."""
    return round(_peak_kb(pid) / 1024)


def forget_peaks(stack: RunningStack) -> None:
    """Let every process's peak begin anew at what it has now (proc(5), clear_refs 5)."""
    for service in stack.services:
        for process in family(service.pid):
            Path(f"/proc/{process.pid}/clear_refs").write_text("5")


def total_peak_kb(stack: RunningStack) -> dict[str, int]:
    """Peak resident memory since `forget_peaks`, KiB, of each service with its workers."""
    return {service.name: _peak_kb(service.pid) for service in stack.services}


def _peak_kb(pid: int) -> int:
    peaks = 0
    for process in family(pid):
        status = Path(f"/proc/{process.pid}/status").read_text("utf-8")
        peaks += next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return peaks

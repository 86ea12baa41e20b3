"""`affidavit bench NAME`: measure, print a table for people, or one flat JSON object as the last line."""

import importlib
import json
import os
import subprocess
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from affidavit.tools.bench import NAMES
from affidavit.tools.cli.exits import Exit, fail


def bench(
    name: str = typer.Argument(help=" or ".join(NAMES)),
    as_json: bool = typer.Option(False, "--json", help="print one JSON object as the last line"),
    quick: bool = typer.Option(False, "--quick", help="at most 5 minutes, less exact"),
    full: bool = typer.Option(False, "--full", help="audit: a log of ten million records, an hour and 10 GB"),
) -> None:
    """Measure speed and quality; peers are installed into .venv-peers on first use."""
    if name not in NAMES:
        fail(f"there is no benchmark {name!r}; there is {', '.join(NAMES)}", Exit.USAGE)
    if full and (quick or name != "audit"):
        fail("--full is for `bench audit`, and not with --quick", Exit.USAGE)
    measure = importlib.import_module(f"affidavit.tools.bench.{name}").run
    figures = measure(quick, full) if full else measure(quick)
    figures |= {"cores": len(os.sched_getaffinity(0)), "cpu": _cpu(), "commit": _commit()}
    if as_json:
        print(json.dumps(figures))
        return
    table = Table("figure", "value", box=None, pad_edge=False)
    for key, value in figures.items():
        table.add_row(key, f"{value:.4g}" if isinstance(value, float) else str(value))
    Console(soft_wrap=True).print(table)


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def _commit() -> str | None:
    here = Path(__file__).resolve().parent
    answer = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() or None

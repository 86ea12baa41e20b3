"""Records for people (a table, a card) and for programs (one JSON object a line)."""

import json
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from affidavit.libs.evidence.record import Leaf, parse_leaf


def write_line(leaf: bytes) -> None:
    """A record as it stands in the log, on a line of its own: the leaf is RFC 8785 JSON, so it has no newline."""
    sys.stdout.buffer.write(leaf + b"\n")
    sys.stdout.buffer.flush()


def records_table(leaves: Sequence[bytes]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("index", justify="right", no_wrap=True)
    for column in ("time (UTC)", "kind", "status", "bundle"):
        table.add_column(column, no_wrap=True)
    table.add_column("tenant")
    table.add_column("request", overflow="ellipsis", no_wrap=True)
    for data in leaves:
        table.add_row(*row(parse_leaf(data)))
    return table


def row(leaf: Leaf) -> tuple[str, ...]:
    kind = leaf.kind if leaf.phase == "single" else f"{leaf.kind} {leaf.phase}"
    status = (leaf.status or "-") + (" (degraded)" if leaf.degraded else "")
    time = f"{leaf.time:%Y-%m-%d %H:%M:%S}"
    return str(leaf.index), time, kind, status, leaf.bundle or "-", leaf.tenant, leaf.request_id


def print_card(leaf: bytes, notes: Sequence[tuple[str, str]]) -> None:
    """Every member that says something, and what the log says beside the record."""
    card = Table(box=None, show_header=False, pad_edge=False)
    card.add_column(style="bold", no_wrap=True)
    card.add_column(overflow="fold")
    members = json.loads(leaf)
    steps, body = members.pop("steps"), members.pop("body", None)
    for name, value in members.items():
        if value not in (None, [], False):
            card.add_row(name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    for step in steps:
        said = (step[n] for n in ("model", "version", "engine", "engine_version", "precision", "device_id") if step[n])
        card.add_row(f"step {step['service']}", " ".join(said))
    for name, value in (body or {}).items():
        card.add_row(f"body.{name}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    for name, value in notes:
        card.add_row(name, value)
    Console(highlight=False).print(card)

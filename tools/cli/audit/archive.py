"""`affidavit audit archive`: archive records, list and verify the archive, release what is in it."""

import json
import sys
from collections.abc import AsyncIterator

import typer

from affidavit.audit.v1 import audit_pb2, audit_pb2_grpc
from affidavit.libs.runtime import DataFolder
from affidavit.tools.cli.audit.access import with_log
from affidavit.tools.cli.audit.maintenance import maintain

app = typer.Typer(help="Records in an object store that lets nobody erase them.", no_args_is_help=True)
_JSON = typer.Option(False, "--json", help="one JSON object")
_HOME = typer.Option("", "--home", envvar="AFFIDAVIT_HOME", help="data folder; empty for the default")
_ARCHIVE = typer.Option("", "--archive", help="folder or s3://bucket/prefix; empty for the setting's")


@app.command("run")
def run(as_json: bool = _JSON) -> None:
    """Archive every record that is not yet in the archive; each segment is read back before it counts."""

    async def work(log: audit_pb2_grpc.AuditServiceStub, _: DataFolder) -> int:
        answers = log.ArchiveRecords(audit_pb2.ArchiveRecordsRequest())
        return await _follow("archived", ((answer.archived, answer.total) async for answer in answers))

    done = with_log(work)
    print(json.dumps({"archived": done}) if as_json else f"{done} records archived, and read back")


@app.command("release")
def release(
    keep_local_days: int = typer.Option(..., "--keep-local-days", min=0, help="younger records stay in the store"),
    as_json: bool = _JSON,
) -> None:
    """Let archived records go from the local store, after reading them back; their hashes, salts and proofs stay.

    The newest 10,000 records stay in any case: every start reads them.
    """

    async def work(log: audit_pb2_grpc.AuditServiceStub, _: DataFolder) -> int:
        answers = log.ReleaseRecords(audit_pb2.ReleaseRecordsRequest(keep_local_days=keep_local_days))
        return await _follow("released", ((answer.released, answer.total) async for answer in answers))

    done = with_log(work)
    print(json.dumps({"released": done}) if as_json else f"{done} records released: they are in the archive alone")


@app.command("ls")
def ls(
    home: str = _HOME, archive: str = _ARCHIVE, as_json: bool = typer.Option(False, "--json", help="a segment a line")
) -> None:
    """List the segments in the archive, with the dates until which they are kept."""
    maintain("archive", "ls", *_given(home, archive, as_json))


@app.command("verify")
def verify(home: str = _HOME, archive: str = _ARCHIVE, as_json: bool = _JSON) -> None:
    """Read all of the archive back: hashes, dates, the chain, and every record against a signed checkpoint.

    Needs the log's public keys, and no running log. Exit codes: 0 whole, 3 it does not answer, 4 damaged.
    """
    maintain("archive", "verify", *_given(home, archive, as_json))


async def _follow(what: str, steps: AsyncIterator[tuple[int, int]]) -> int:
    """Show how far it is, on a terminal; what was done in the end."""
    done = 0
    shown = False
    async for done, total in steps:
        if sys.stderr.isatty() and total:
            print(f"\r{what}: {done} of {total}", end="", file=sys.stderr, flush=True)
            shown = True
    if shown:
        print(file=sys.stderr)
    return done


def _given(home: str, archive: str, as_json: bool) -> list[str]:
    flags = [("--home", home), ("--archive", archive)]
    return [part for flag, value in flags if value for part in (flag, value)] + (["--json"] if as_json else [])

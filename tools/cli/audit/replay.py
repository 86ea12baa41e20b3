"""`affidavit audit replay`: answer a recorded document once more and compare."""

import asyncio
import json as json_text
import sys
from pathlib import Path

import grpc
import typer

from affidavit.audit.v1 import audit_pb2_grpc
from affidavit.libs.errors import AffidavitError, from_rpc_error
from affidavit.libs.evidence.receipt import VerificationError
from affidavit.libs.models import ModelCard, ModelFolder
from affidavit.libs.runtime import DataFolder
from affidavit.tools.cli.audit.access import with_log
from affidavit.tools.cli.exits import Exit, exit_for, fail
from affidavit.tools.cli.verify import read_log_key
from affidavit.tools.replay import record
from affidavit.tools.replay.again import Replayed, answer_again, models_folder
from affidavit.tools.replay.compare import tolerance_of
from affidavit.tools.replay.record import NotReplayable, Recorded
from affidavit.tools.replay.verdict import Verdict, judge


def replay(
    index: int = typer.Argument(min=0, help="index of the document's closing record"),
    input: Path = typer.Option(..., "--input", help="the document that was read"),
    result: Path | None = typer.Option(
        None, "--result", help="the recorded answer, to name the first difference: as `affidavit ocr -o` wrote it"
    ),
    password: str = typer.Option("", "--password", envvar="AFFIDAVIT_PASSWORD", help="of an encrypted PDF"),
    out: Path | None = typer.Option(None, "-o", "--out", help="file for the new answer"),
    log_key: Path | None = typer.Option(None, "--log-key", help="log's public key, PEM [default: the data folder's]"),
    json: bool = typer.Option(False, "--json", help="one JSON object"),
) -> None:
    """Read a recorded document again, on services started for it alone, with the recorded bundle, options and threads.

    Nothing is written to the log. Exit code 0: the same, or within the models' tolerance. 4: another answer.
    """
    try:
        known = result.read_bytes() if result else None

        async def work(log: audit_pb2_grpc.AuditServiceStub, data: DataFolder) -> Recorded:
            return await record.read(log, index, read_log_key(log_key or data.log_public_key), input, known)

        recorded = with_log(work)
        cards = _cards(recorded)  # first: without the bundle, nothing need start
        replayed = asyncio.run(_again(recorded, input, password))
        if out:
            out.write_bytes(replayed.result)
        verdict, where = judge(recorded, replayed.result, replayed.pages, known, tolerance_of(cards))
    except NotReplayable as error:
        fail(str(error), Exit.USAGE)
    except VerificationError as error:
        fail(f"NOT replayed: {error}", Exit.UNVERIFIED)
    except AffidavitError as error:
        fail(f"{error.message} [{error.reason}]", exit_for(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}", Exit.USAGE)
    changed = record.changed_steps(recorded, replayed.receipts)
    if json:
        said = {"index": index, "verdict": verdict.value, "first_difference": where or None, "changed": changed}
        print(json_text.dumps(said, ensure_ascii=False))
    else:
        print(f"{verdict.value}: record {index}, {len(replayed.pages)} pages, {recorded.leaf.bundle}")
        if where:
            print(f"  {where}")
        print(
            "  " + ("read by other means: " + "; ".join(changed) if changed else "by the recorded software and engine")
        )
    sys.exit(Exit.UNVERIFIED if verdict is Verdict.DIFFERENT else Exit.OK)


async def _again(recorded: Recorded, input: Path, password: str) -> Replayed:
    try:
        return await answer_again(
            recorded, input, password, lambda line: print(f"affidavit: replay: {line}", file=sys.stderr)
        )
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error, "ingress") from None


def _cards(recorded: Recorded) -> list[ModelCard]:
    reference = recorded.leaf.bundle or ""
    bundle = ModelFolder(models_folder()).bundle(reference.partition("@")[0], reference)
    return [member.card for member in bundle.members.values()]

"""`affidavit audit pack`: one old answer with everything an auditor needs."""

from pathlib import Path

import typer

from affidavit.audit.v1 import audit_pb2_grpc
from affidavit.libs.evidence.receipt import VerificationError, read_receipt
from affidavit.libs.evidence.timestamps import FOLDER, TimestampFolder
from affidavit.libs.runtime import DataFolder
from affidavit.tools.auditpack.collect import Collected, gather
from affidavit.tools.auditpack.command import write_pack
from affidavit.tools.cli.audit.access import with_log
from affidavit.tools.cli.exits import Exit, fail


def pack(
    index: int = typer.Argument(min=0, help="index of the record: a document's closing record, or a page's"),
    result: Path = typer.Option(..., "--result", help="the answer's exact bytes, as `affidavit ocr -o` wrote them"),
    input: Path | None = typer.Option(None, "--input", help="the input, to check it against the record"),
    receipt: Path | None = typer.Option(
        None, "--receipt", help="pack as of this receipt's checkpoint, for the same bytes each time"
    ),
    out: Path = typer.Option(Path("audit.zip"), "-o", "--out", help="zip to write"),
) -> None:
    """Pack a recorded answer for an auditor, as of the first timestamped checkpoint that covers it, else the newest one."""
    try:
        answer, content = result.read_bytes(), input.read_bytes() if input else None
        known = read_receipt(receipt) if receipt else None
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}", Exit.USAGE)
    except VerificationError as error:
        fail(str(error), Exit.USAGE)
    if known and known.index != index:
        fail(f"{receipt} is of record {known.index}, not {index}", Exit.USAGE)

    async def work(log: audit_pb2_grpc.AuditServiceStub, data: DataFolder) -> tuple[Collected, DataFolder]:
        try:
            return await gather(log, index, TimestampFolder(data.audit / FOLDER), known), data
        except OSError as error:
            fail(f"{error.filename}: {error.strerror}", Exit.FAILED)

    write_pack(*with_log(work), answer, content, out)

"""`affidavit audit prove`: a record's receipt, or its proof in the form that other people's tools read."""

from pathlib import Path

import typer
from google.protobuf import json_format

from affidavit.audit.v1 import audit_pb2, audit_pb2_grpc
from affidavit.libs.evidence.receipt import VerificationError, verify_receipt, write_receipt
from affidavit.libs.evidence.tlogproof import proof_text
from affidavit.libs.runtime import DataFolder
from affidavit.tools.cli.audit.access import with_log
from affidavit.tools.cli.exits import Exit, fail
from affidavit.tools.cli.inputs import write_atomically
from affidavit.tools.cli.verify import read_log_key


def prove(
    index: int = typer.Argument(min=0, help="index of the record"),
    out: Path | None = typer.Option(None, "-o", "--out", help="file to write [default: standard output]"),
    tlog: bool = typer.Option(False, "--tlog-proof", help="C2SP tlog-proof instead of a receipt"),
    log_key: Path | None = typer.Option(None, "--log-key", help="log's public key, PEM [default: the data folder's]"),
) -> None:
    """Prove that a record is in the log; the proof is checked before it is handed out."""
    answer, data = with_log(lambda log, data: _get(log, index, data))
    key = read_log_key(log_key or data.log_public_key)
    try:
        verify_receipt(answer.receipt, key)
    except VerificationError as error:
        fail(f"NOT verified: {error}", Exit.UNVERIFIED)
    receipt = answer.receipt
    if tlog:
        text = proof_text(receipt.index, receipt.inclusion_proof.hashes, receipt.checkpoint.note)
        if out:
            write_atomically(out, text)
        else:
            print(text.decode(), end="")
    elif out:
        write_receipt(out, receipt)
    else:
        print(json_format.MessageToJson(receipt, indent=2))


async def _get(
    log: audit_pb2_grpc.AuditServiceStub, index: int, data: DataFolder
) -> tuple[audit_pb2.GetRecordResponse, DataFolder]:
    return await log.GetRecord(audit_pb2.GetRecordRequest(index=index)), data

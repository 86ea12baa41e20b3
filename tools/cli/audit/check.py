"""`affidavit audit check`: hold receipts against the log as it is now."""

from pathlib import Path

import typer

from affidavit.audit.v1 import audit_pb2, audit_pb2_grpc
from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.logkeys import LogKeys
from affidavit.libs.evidence.note import NoteError, TreeHead
from affidavit.libs.evidence.receipt import VerificationError, read_receipt, verify_receipt
from affidavit.libs.runtime import DataFolder
from affidavit.tools.cli.audit.access import with_log
from affidavit.tools.cli.exits import Exit, fail
from affidavit.tools.cli.verify import read_log_key

_DEADLINE_S = 30.0


def check(
    receipts: list[Path] = typer.Argument(metavar="RECEIPT...", help="*.receipt.json, old ones too"),
    log_key: Path | None = typer.Option(None, "--log-key", help="log's public key, PEM [default: the data folder's]"),
) -> None:
    """See that the log still has what it once acknowledged; exit 4 when it does not.

    Each receipt is verified by itself; then the log has to prove that its newest checkpoint continues the receipt's, and
    to give the same record at the same index. A log that was put back to an earlier copy can do neither.
    """
    keys = read_log_key(log_key or DataFolder.default().log_public_key)
    held = [_read(path, keys) for path in receipts]

    async def compare(log: audit_pb2_grpc.AuditServiceStub, _: DataFolder) -> list[TreeHead]:
        return [await still_there(log, receipt, keys) for receipt in held]

    try:
        heads = with_log(compare)
    except NotInTheLog as error:
        fail(f"ALARM: {error}", Exit.UNVERIFIED)
    for path, receipt, head in zip(receipts, held, heads, strict=True):
        print(f"{path}: record {receipt.index} is in the log of {head.size} records, which continues the receipt's")


class NotInTheLog(Exception):
    """The log does not have what it once signed; the message says which record and how."""


async def still_there(log: audit_pb2_grpc.AuditServiceStub, receipt: evidence_pb2.Receipt, keys: LogKeys) -> TreeHead:
    """Compare a verified receipt with the log; the log's newest head.

    Raises:
        NotInTheLog: the log is another, went back, has another past, or another record there.
    """
    what = f"record {receipt.index}"
    old = keys.open(receipt.checkpoint.note)
    answer = await log.GetCheckpoint(audit_pb2.GetCheckpointRequest(), timeout=_DEADLINE_S)
    try:
        new = keys.open(answer.checkpoint.note)
    except NoteError as error:
        raise NotInTheLog(f"the log's checkpoint is not signed by a key of the receipt of {what}: {error}") from None
    if new.origin != old.origin:
        raise NotInTheLog(f"the receipt of {what} is of log {old.origin}, this log is {new.origin}")
    if new.size < old.size:
        lost = old.size - new.size
        message = f"the log went back: it had {old.size} records when it acknowledged {what}, and has {new.size}"
        raise NotInTheLog(f"{message}: {lost} are gone")
    request = audit_pb2.GetConsistencyProofRequest(first_size=old.size, second_size=new.size)
    proof = (await log.GetConsistencyProof(request, timeout=_DEADLINE_S)).hashes
    try:
        merkle.verify_consistency(old.size, new.size, old.root, new.root, proof)
    except merkle.ProofError as error:
        message = f"the log of {new.size} records does not continue the one of {old.size} that acknowledged {what}"
        raise NotInTheLog(f"{message}: its past was changed ({error})") from None
    record = await log.GetRecord(audit_pb2.GetRecordRequest(index=receipt.index), timeout=_DEADLINE_S)
    if record.receipt.leaf != receipt.leaf:
        raise NotInTheLog(f"{what} is not the one that the receipt has")
    return new


def _read(path: Path, keys: LogKeys) -> evidence_pb2.Receipt:
    try:
        receipt = read_receipt(path)
        verify_receipt(receipt, keys)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}", Exit.USAGE)
    except VerificationError as error:
        fail(f"{path}: NOT verified: {error}", Exit.UNVERIFIED)
    return receipt

"""Make a pack: of a record that is in the log, or (the console script `audit-pack`) of an answer that it first asks for."""

import asyncio
import sys
from pathlib import Path

import grpc
import typer

from affidavit.audit.v1 import audit_pb2_grpc
from affidavit.ingress.v1 import document_pb2 as ingress_pb2
from affidavit.ingress.v1 import document_pb2_grpc as ingress_grpc
from affidavit.libs.errors import AffidavitError, from_rpc_error
from affidavit.libs.evidence.keys import KeyFileError, public_pem
from affidavit.libs.evidence.modelkey import model_key
from affidavit.libs.evidence.receipt import VerificationError, verify_receipt
from affidavit.libs.evidence.rotation import RotationError
from affidavit.libs.evidence.timestamps import TimestampError
from affidavit.libs.models import default_models_folder
from affidavit.libs.models.signed import SignedModels
from affidavit.libs.rpc import connect
from affidavit.libs.runtime import DataFolder
from affidavit.tools.auditpack.archive import pack_members, zip_bytes
from affidavit.tools.auditpack.collect import Collected, complete
from affidavit.tools.auditpack.models import model_files
from affidavit.tools.cli.exits import Exit, exit_for, fail
from affidavit.tools.cli.inputs import write_atomically
from affidavit.tools.cli.verify import read_log_key
from affidavit.tools.client import document
from affidavit.tools.client.document import Document
from affidavit.tools.stack.session import session
from affidavit.tools.stack.stackfile import StackHeld
from affidavit.tools.stack.supervisor import StartFailed


def write_pack(collected: Collected, data: DataFolder, result: bytes, input: bytes | None, output: Path) -> None:
    """Check the record against result and input, and write the zip; ends the command where one fails."""
    key, timestamp = read_log_key(data.log_public_key), collected.timestamp
    try:
        if timestamp:
            timestamp.check_imprint()
        leaf = verify_receipt(collected.receipt, key, result=result, input=None if input is None else [input]).leaf
        signer = key.signer_of(collected.receipt.checkpoint.note)
        for handover in collected.handovers:
            handover.verify()
        if leaf.bundle:
            kept, used = SignedModels(data.models), collected.model_hashes
            models = model_files(default_models_folder(), kept, leaf.bundle, used, lambda: model_key(data.keys))
        else:
            fail(f"record {leaf.index} ({leaf.kind}) is no model's answer: there is nothing to pack", Exit.USAGE)
        write_atomically(output, zip_bytes(pack_members(collected, public_pem(signer), models, result)))
    except (VerificationError, TimestampError, RotationError) as error:
        fail(f"NOT packed: {error}", Exit.UNVERIFIED)
    except KeyFileError as error:
        fail(str(error), Exit.USAGE)
    except AffidavitError as error:
        fail(f"{error.message} [{error.reason}]", exit_for(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}", Exit.FAILED)
    stamped = f"timestamped as of {timestamp.size} records" if timestamp else "no timestamp"
    print(f"{output}: record {leaf.index}, {1 + len(collected.children)} records of {leaf.bundle}; {stamped}")
    print(f"check it: unzip {output} -d FOLDER && python3 -I FOLDER/verify.py --log-key {data.log_public_key}")


def main() -> None:
    """The console script."""
    try:
        typer.run(audit_pack)
    except (StackHeld, StartFailed) as error:
        fail(str(error), Exit.UNAVAILABLE)
    except AffidavitError as error:
        fail(f"{error.message} [{error.reason}]", exit_for(error))


def audit_pack(
    input: Path = typer.Option(..., "--input", help="document to read"),
    output: Path = typer.Option(..., "--output", "-o", help="zip to write"),
    model: str = typer.Option("", "--model", help="bundle@version or alias [default: promoted]"),
) -> None:
    """Read a document and pack the answer with its evidence, for an auditor."""
    try:
        content = input.read_bytes()
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}", Exit.USAGE)
    answer, collected, data = asyncio.run(_run(input, model))
    write_pack(collected, data, answer.result, content, output)


async def _run(input: Path, model: str) -> tuple[Document, Collected, DataFolder]:
    async with session(lambda line: print(f"affidavit: {line}", file=sys.stderr)) as stack:
        if stack.data is None or stack.stack is None:
            fail("audit-pack needs the stack's log and keys: unset AFFIDAVIT_ADDRESS", Exit.USAGE)
        try:
            async with connect(stack.address) as channel:
                stub = ingress_grpc.DocumentServiceStub(channel)
                info = await stub.GetServiceInfo(
                    ingress_pb2.GetServiceInfoRequest(), metadata=[("x-model-version", model)] if model else []
                )
                bundle = f"{info.bundle.name}@{info.bundle.version}"
                with input.open("rb") as file:
                    answer = await document.recognize(stub, file, bundle=bundle, on_page=lambda _: None)
            async with connect(stack.stack.address_of("audit")) as channel:
                log = audit_pb2_grpc.AuditServiceStub(channel)
                return answer, await complete(log, answer.receipt), stack.data
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, "ingress") from None


if __name__ == "__main__":
    main()

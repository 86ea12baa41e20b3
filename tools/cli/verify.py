"""`affidavit verify`: check a receipt offline."""

import sys
from collections.abc import Iterator
from pathlib import Path

import typer

from affidavit.libs.evidence.keys import KeyFileError
from affidavit.libs.evidence.logkeys import LogKeys
from affidavit.libs.evidence.receipt import VerificationError, read_receipt, verify_receipt
from affidavit.libs.evidence.rotation import RotationError, follow, parse_chain
from affidavit.libs.runtime import DataFolder
from affidavit.tools.cli.exits import Exit, fail

ROTATIONS = typer.Option(
    None,
    "--rotations",
    help="follow from the key to those before and after it: `affidavit audit key rotations -o FILE`",
)


def verify(
    receipt: Path = typer.Argument(metavar="RECEIPT", help="*.receipt.json"),
    result: Path | None = typer.Option(None, "--result", help="the answer, as written by `affidavit ocr -o`"),
    input: Path | None = typer.Option(None, "--input", help="the document that was read"),
    log_key: Path | None = typer.Option(None, "--log-key", help="log's public key, PEM [default: the data folder's]"),
    rotations: Path | None = ROTATIONS,
) -> None:
    """Check a receipt: leaf, inclusion proof, checkpoint signature and, where given, result and input."""
    key = read_log_key(log_key or DataFolder.default().log_public_key, rotations)
    try:
        pieces = None if input is None else _pieces(input)
        answer = None if result is None else result.read_bytes()
        verified = verify_receipt(read_receipt(receipt), key, result=answer, input=pieces)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}", Exit.USAGE)
    except VerificationError as error:
        fail(f"NOT verified: {error}", Exit.UNVERIFIED)
    leaf = verified.leaf
    print(f"verified: record {leaf.index} of {verified.head.origin}")
    print(f"  {leaf.kind} {leaf.phase}, status {leaf.status}, recorded {leaf.time:%Y-%m-%d %H:%M:%S} UTC")
    print(f"  answered by {leaf.bundle}, request {leaf.request_id}, tenant {leaf.tenant}")
    print(f"  leaf in the tree of {verified.head.size} records, checkpoint signed by the log's key")
    print(f"  result: {'is what was recorded' if verified.result_checked else 'not checked (--result FILE)'}")
    print(f"  input: {'is what was read' if verified.input_checked else 'not checked (--input FILE)'}")
    sys.exit(Exit.OK)


def read_log_key(path: Path, rotations: Path | None = None) -> LogKeys:
    """The log's public key, and the retired ones: in the folder beside it, or by what `rotations` proves; ends the command
    when there is none."""
    try:
        keys = LogKeys.beside(path)
    except OSError as error:
        fail(f"log key {path}: {error.strerror}; name it with --log-key", Exit.USAGE)
    except KeyFileError as error:
        fail(str(error), Exit.USAGE)
    if rotations is None:
        return keys
    try:
        return follow(keys.current, parse_chain(rotations.read_bytes()))
    except RotationError as error:
        fail(f"NOT verified: {rotations}: {error}", Exit.UNVERIFIED)
    except OSError as error:
        fail(f"{rotations}: {error.strerror}", Exit.USAGE)


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            yield piece

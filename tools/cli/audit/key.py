"""`affidavit audit key`: the log's key, as others need it."""

import json

import typer
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from affidavit.audit.v1 import audit_pb2, audit_pb2_grpc
from affidavit.libs.evidence.keys import KeyFileError, load_public_key
from affidavit.libs.evidence.note import NoteError, Verifier, open_own_checkpoint
from affidavit.libs.runtime import DataFolder
from affidavit.tools.cli.audit.access import with_log
from affidavit.tools.cli.exits import Exit, fail

app = typer.Typer(help="The log's key, as witnesses, monitors and auditors need it.", no_args_is_help=True)


@app.command("show")
def show(
    verifier: bool = typer.Option(False, "--verifier", help="the verifier key alone: what --log of the others takes"),
    pem: bool = typer.Option(False, "--pem", help="the public key alone, PEM: what --log-key takes"),
    as_json: bool = typer.Option(False, "--json", help="one JSON object"),
) -> None:
    """Show the log's public key, once the newest checkpoint is found to be signed with it.

    The verifier key is C2SP's name+id+base64. Hand it over by a way of your own: a witness, monitor or auditor that takes
    it from the log itself, each time, trusts whatever the log says.
    """
    if verifier + pem + as_json > 1:
        fail("one of --verifier, --pem and --json", Exit.USAGE)
    answer, data = with_log(_ask)
    try:
        key = _key(answer.public_key_pem)
        origin = open_own_checkpoint(answer.checkpoint.note, key).origin
    except NoteError as error:
        fail(f"the log's checkpoint is not signed with the key that it names: {error}", Exit.UNVERIFIED)
    known = Verifier(origin, key)
    place = _file_of(data, key)
    if verifier:
        print(known.text())
    elif pem:
        print(answer.public_key_pem, end="")
    elif as_json:
        print(json.dumps({"origin": origin, "verifier": known.text(), "pem": answer.public_key_pem, "file": place}))
    else:
        print(f"log       {origin}\nverifier  {known.text()}\nPEM       {place or 'not in this data folder: --pem'}")


async def _ask(
    log: audit_pb2_grpc.AuditServiceStub, data: DataFolder
) -> tuple[audit_pb2.GetCheckpointResponse, DataFolder]:
    return await log.GetCheckpoint(audit_pb2.GetCheckpointRequest()), data


def _key(pem: str) -> Ed25519PublicKey:
    try:
        key = load_pem_public_key(pem.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise NoteError(f"no PEM public key: {error}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise NoteError("no Ed25519 key")
    return key


def _file_of(data: DataFolder, key: Ed25519PublicKey) -> str | None:
    """The file that holds `key`; None for a log elsewhere, whose key is not in this data folder."""
    try:
        same = load_public_key(data.log_public_key).public_bytes_raw() == key.public_bytes_raw()
    except (OSError, KeyFileError):
        return None
    return str(data.log_public_key) if same else None

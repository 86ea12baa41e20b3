"""`affidavit audit key`: the log's key, as others need it."""

import json
from pathlib import Path

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from affidavit.audit.v1 import audit_pb2, audit_pb2_grpc
from affidavit.libs.evidence.keys import KeyFileError, load_public_key, parse_public_pem
from affidavit.libs.evidence.logkeys import LogKeys
from affidavit.libs.evidence.note import Verifier
from affidavit.libs.evidence.rotation import Handover, RotationError, chain_text, follow
from affidavit.libs.runtime import DataFolder
from affidavit.tools.auditpack.collect import read_handovers
from affidavit.tools.cli.audit.access import with_log
from affidavit.tools.cli.audit.maintenance import maintain
from affidavit.tools.cli.exits import Exit, fail
from affidavit.tools.cli.inputs import write_atomically

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
        key = parse_public_pem(answer.public_key_pem.encode())
        origin = LogKeys(key).open(answer.checkpoint.note).origin
    except ValueError as error:
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


@app.command("rotate")
def rotate(
    to: str = typer.Option(
        "", "--to", help="a PEM file or pkcs11: URI of a key that is there; empty: make keys/log.key anew"
    ),
    keep_old: bool = typer.Option(False, "--keep-old", help="keep the old private key, as keys/retired/N.key"),
    home: str = typer.Option("", "--home", envvar="AFFIDAVIT_HOME", help="data folder; empty for the default"),
) -> None:
    """Give a stopped log another key. The old key signs the record that names the new one, and then nothing any more.

    Old receipts stay valid; witnesses need the new verifier key. Exit codes: 0 done, 3 the log is in use, 4 damaged.
    """
    given = [*(["--to", to] if to else []), *(["--keep-old"] if keep_old else []), *(["--home", home] if home else [])]
    maintain("rotate", *given)


@app.command("rotations")
def rotations(out: Path = typer.Option(..., "-o", "--out", help="file to write")) -> None:
    """Write how the log's key was handed over each time: with it whoever trusts one key can follow to the others."""

    async def work(log: audit_pb2_grpc.AuditServiceStub, _: DataFolder) -> list[Handover]:
        return await read_handovers(log)

    handovers = with_log(work)
    try:
        for handover in handovers:
            handover.verify()
        if handovers:
            follow(handovers[0].verify()[1].old.key, handovers)
        write_atomically(out, chain_text(handovers))
    except RotationError as error:
        fail(str(error), Exit.UNVERIFIED)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}", Exit.USAGE)
    print(f"{out}: {len(handovers)} rotations")


async def _ask(
    log: audit_pb2_grpc.AuditServiceStub, data: DataFolder
) -> tuple[audit_pb2.GetCheckpointResponse, DataFolder]:
    return await log.GetCheckpoint(audit_pb2.GetCheckpointRequest()), data


def _file_of(data: DataFolder, key: Ed25519PublicKey) -> str | None:
    """The file that holds `key`; None for a log elsewhere, whose key is not in this data folder."""
    try:
        same = load_public_key(data.log_public_key).public_bytes_raw() == key.public_bytes_raw()
    except (OSError, KeyFileError):
        return None
    return str(data.log_public_key) if same else None

"""`affidavit audit witness`: cosign checkpoints of logs, on a machine that their operator does not control."""

from pathlib import Path

import typer

from affidavit.libs.evidence.keys import KeyFileError
from affidavit.libs.evidence.note import NoteError, Verifier, is_key_name
from affidavit.tools.cli.exits import Exit, fail
from affidavit.tools.witness.witness import StateHeld, Witness


def witness(
    log: list[str] = typer.Option(..., "--log", help="verifier key of a log to cosign, name+id+base64; may repeat"),
    name: str = typer.Option(..., "--name", help="this witness's key name, such as witness.example/w1"),
    state: Path = typer.Option(..., "--state", help="folder of its key and of what it has seen; back it up"),
    host: str = typer.Option("127.0.0.1", "--host", help="address to listen on"),
    port: int = typer.Option(7460, "--port", min=1, max=65_535, help="port to listen on"),
) -> None:
    """Cosign checkpoints that only ever grow (C2SP tlog-witness, POST /add-checkpoint).

    Prints its verifier key, which the log's operator and every auditor configure. Run it on another machine than the
    log's. Behind a proxy that speaks TLS if it is reached over a network.
    """
    if not is_key_name(name):
        fail(f"--name {name!r}: a key name has no spaces and no '+'", Exit.USAGE)
    try:
        running = Witness(state, name, [Verifier.parse(text) for text in log])
    except (NoteError, KeyFileError, StateHeld) as error:
        fail(str(error), Exit.USAGE)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}", Exit.USAGE)
    print(running.verifier.text(), flush=True)
    from aiohttp import web  # 0.3 s that no other command should take

    from affidavit.tools.witness.server import application

    try:
        web.run_app(application(running), host=host, port=port, print=None)
    except OSError as error:
        fail(f"{host}:{port}: {error.strerror}", Exit.UNAVAILABLE)
    finally:
        running.close()

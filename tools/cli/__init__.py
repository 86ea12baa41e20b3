"""The `affidavit` command. Exit codes: 0 fine, 1 some page or file failed, 2 wrong use, 3 service unavailable,
4 verification failed."""

import sys

import typer

from affidavit.tools.cli import audit, bench, config, demo, ocr, stack, usage, verify
from affidavit.tools.cli.exits import Exit, fail
from affidavit.tools.stack.stackfile import StackHeld
from affidavit.tools.stack.supervisor import StartFailed

app = typer.Typer(
    name="affidavit",
    help="AI inference whose every answer can be proved.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 fine, 1 some page or file failed, 2 wrong use, 3 service unavailable, 4 verification failed.",
)
app.command("ocr")(ocr.ocr)
app.command("verify")(verify.verify)
app.command("up")(stack.up)
app.command("down")(stack.down)
app.command("status")(stack.status)
app.command("demo")(demo.demo)
app.command("usage")(usage.usage)
app.command("bench")(bench.bench)
app.add_typer(audit.app, name="audit")
app.add_typer(config.app, name="config")


def main() -> None:
    """The console script."""
    try:
        app()
    except (StackHeld, StartFailed) as error:
        fail(str(error), Exit.UNAVAILABLE)
    except BrokenPipeError:  # `affidavit ocr … | head`
        sys.stderr.close()
        sys.exit(Exit.OK)
    except KeyboardInterrupt:
        fail("interrupted", Exit.INTERRUPTED)

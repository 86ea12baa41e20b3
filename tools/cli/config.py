"""`affidavit config show`: every setting, its value, and where the value comes from."""

import importlib

import typer
from rich.console import Console
from rich.table import Table

from affidavit.libs.runtime import SERVICE_NAMES
from affidavit.libs.settings import SettingsError, load
from affidavit.tools.cli.exits import Exit, fail

app = typer.Typer(help="Settings of the services.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Settings of the services."""


@app.command()
def show(service: str = typer.Argument("", help="only this service")) -> None:
    """Print each setting's value and origin: flag > environment > affidavit.yaml > default."""
    if service and service not in SERVICE_NAMES:
        fail(f"there is no service {service!r}; there is {', '.join(SERVICE_NAMES)}", Exit.USAGE)
    table = Table("service", "setting", "value", "from", box=None, pad_edge=False)
    for name in [service] if service else SERVICE_NAMES:
        # The settings of a service stand in its __main__, which has one public settings model.
        module = importlib.import_module(f"affidavit.services.{name}.__main__")
        model = getattr(module, f"{name.capitalize()}Settings")
        try:
            loaded = load(model, name)
        except SettingsError as error:
            fail(str(error), Exit.USAGE)
        for setting in model.model_fields:
            table.add_row(name, setting, str(getattr(loaded.values, setting)), loaded.origins[setting])
    Console(soft_wrap=True).print(table)

"""Settings of a process: flag > `AFFIDAVIT_<SERVICE>_<NAME>` > `affidavit.yaml` > default, each with its origin.

Only `services/*/__main__.py` and the command read configuration; everything else is given values.

    class OcrSettings(BaseModel):
        address: str = "127.0.0.1:7442"
        max_batch: int = Field(6, ge=1, le=64, description="crops in a recognition batch")

    loaded = load(OcrSettings, "ocr", sys.argv[1:])
    loaded.values.max_batch, loaded.origins["max_batch"]      # 6, "default"
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import yaml
from pydantic import BaseModel, ValidationError

T = TypeVar("T", bound=BaseModel)


class SettingsError(Exception):
    """A setting is unknown or out of range; the message names it and where it came from."""


@dataclass(frozen=True)
class Loaded(Generic[T]):
    """Validated values and, for each name, where the value came from."""

    values: T
    origins: Mapping[str, str]


def load(model: type[T], service: str, argv: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> Loaded[T]:
    """Settings of `service`.

    Args:
        model: a pydantic model without nested models; its field names are the settings' names.
        service: section in `affidavit.yaml` and middle of the environment names.
        argv: flags, `--max-batch 8`; `--help` lists them and exits.

    Raises:
        SettingsError: an unknown name in the file, or a value that does not fit, with its origin.
    """
    environ = os.environ if environ is None else environ
    flags = _flags(model, service, argv)
    path = Path(environ.get("AFFIDAVIT_CONFIG", "affidavit.yaml"))
    section = _yaml_section(path, service)
    if unknown := sorted(set(section) - set(model.model_fields)):
        raise SettingsError(f"{path}: section {service} has unknown settings: {', '.join(unknown)}")
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name in model.model_fields:
        env_name = f"AFFIDAVIT_{service}_{name}".upper()
        if name in flags:
            values[name], origins[name] = flags[name], f"--{name.replace('_', '-')}"
        elif env_name in environ:
            values[name], origins[name] = environ[env_name], f"${env_name}"
        elif name in section:
            values[name], origins[name] = section[name], str(path)
        else:
            origins[name] = "default"
    try:
        return Loaded(model.model_validate(values), origins)
    except ValidationError as error:
        lines = [
            f"{'.'.join(map(str, e['loc']))} ({origins.get(str(e['loc'][0]), '?')}): {e['msg']}" for e in error.errors()
        ]
        raise SettingsError(f"settings of {service}: " + "; ".join(lines)) from None


def _flags(model: type[BaseModel], service: str, argv: Sequence[str]) -> dict[str, str]:
    parser = argparse.ArgumentParser(prog=f"affidavit {service}", description=model.__doc__)
    for name, field in model.model_fields.items():
        env = f"AFFIDAVIT_{service}_{name}".upper()
        text = (field.description or "").replace("%", "%%")
        parser.add_argument(f"--{name.replace('_', '-')}", dest=name, help=f"{text} [default {field.default}; ${env}]")
    return {k: v for k, v in vars(parser.parse_args(list(argv))).items() if v is not None}


def _yaml_section(path: Path, service: str) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise SettingsError(f"{path}: {error}") from None
    section: Any = cast("dict[str, Any]", content).get(service) or {} if isinstance(content, dict) else None
    if not isinstance(section, dict):
        raise SettingsError(f"{path}: must be a mapping of service names to mappings of settings")
    return cast("dict[str, Any]", section)

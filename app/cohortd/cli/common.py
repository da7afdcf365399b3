"""What commands share: settings from flags, and output for people or machines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from cohortd.settings import Settings, load

F = TypeVar("F", bound=Callable[..., Any])


def database_option(command: F) -> F:
    """The option that names the database."""
    return click.option("--database-url", help="Database to use; else COHORTD_DATABASE_URL.")(command)


def json_option(command: F) -> F:
    """The option that prints JSON instead of text."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def settings_of(context: click.Context, **flags: Any) -> Settings:
    """The settings in force, flags first."""
    config_file: Path | None = context.find_root().obj
    return load(flags, config=config_file)


def show(value: Any, as_json: bool, text: str) -> None:
    """Print the value as JSON, or the text."""
    click.echo(msgspec.json.format(msgspec.json.encode(value)).decode() if as_json else text)

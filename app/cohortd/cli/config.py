"""`cohortd config`: the settings in force."""

from __future__ import annotations

from typing import Any

import click

from cohortd.cli.common import json_option, settings_of, show


@click.group()
def config() -> None:
    """Look at the settings.

    Example: cohortd config show
    """


@config.command("show")
@json_option
@click.pass_context
def show_settings(context: click.Context, as_json: bool) -> None:
    """Print every setting in force, secrets masked.

    Example: cohortd config show --json
    """
    shown = settings_of(context).shown()
    show(shown, as_json, "\n".join(_lines(shown, "")))


def _lines(value: Any, name: str) -> list[str]:
    if isinstance(value, dict):
        return [line for key, inner in value.items() for line in _lines(inner, f"{name}.{key}" if name else str(key))]
    return [f"{name} = {value!r}"]

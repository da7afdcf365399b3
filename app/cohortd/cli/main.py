"""`cohortd`: the group of all commands, and how they fail."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cohortd import __version__, logs
from cohortd.cli.config import config
from cohortd.cli.db import db
from cohortd.cli.demo import demo
from cohortd.cli.mock_judge import mock_judge
from cohortd.cli.prune import prune
from cohortd.cli.release import release
from cohortd.cli.serve import serve
from cohortd.errors import CohortdError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="Settings file; else COHORTD_CONFIG, ./cohortd.toml.",
)
@click.version_option(__version__, prog_name="cohortd")
@click.pass_context
def cli(context: click.Context, config_file: Path | None) -> None:
    """Durable rewards for cohorts of sibling rollouts that are judged against each other.

    Example: cohortd serve --database-url sqlite+aiosqlite:///./cohortd.db
    """
    context.obj = config_file


for _command in (serve, db, mock_judge, config, demo, release, prune):
    cli.add_command(_command)


def main() -> None:
    """Run a command; 0 when it did its work, 1 when it could not, 2 when it was called wrongly."""
    try:
        status = cli(standalone_mode=False)  # what `context.exit` was given comes back as a value
        sys.exit(status if isinstance(status, int) else 0)
    except click.exceptions.Abort:
        click.echo("cohortd: stopped; nothing is half-written.", err=True)
        sys.exit(1)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except CohortdError as error:
        click.echo(f"cohortd: {error}", err=True)
        sys.exit(1)
    except OSError as error:
        place = f": {error.filename}" if error.filename else ""
        click.echo(f"cohortd: {error.strerror or type(error).__name__}{place}", err=True)
        sys.exit(1)
    except Exception as error:  # noqa: BLE001  (the messages of libraries may quote a URL with its password)
        click.echo(f"cohortd: this is a fault of cohortd, please report it.\n{logs.shown(error)}", err=True)
        sys.exit(1)

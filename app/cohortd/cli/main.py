"""`cohortd`: the group of all commands, and how they fail."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cohortd import __version__
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
        cli(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except CohortdError as error:
        click.echo(f"cohortd: {error}", err=True)
        sys.exit(1)

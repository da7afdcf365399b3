"""`cohortd prune`: retention by hand, beside a running server or without one."""

from __future__ import annotations

import asyncio
import secrets

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from cohortd.cli.common import database_option, json_option, settings_of, show
from cohortd.errors import DatabaseUnavailable, SettingsError
from cohortd.service.retention import batches, kept_by
from cohortd.store import migrate
from cohortd.store.engine import Database, Location
from cohortd.store.retention import Dropped, Keep
from cohortd.store.writer import Clash, Unavailable


@click.command()
@database_option
@json_option
@click.option("--payload-ttl-s", type=float, help="Drop texts and bodies of cohorts settled so many seconds ago.")
@click.option("--cohort-result-ttl-s", type=float, help="Drop results of cohorts settled so many seconds ago.")
@click.option("--max-terminal-cohorts", type=int, help="Keep the results of so many settled cohorts, newest first.")
@click.pass_context
def prune(
    context: click.Context,
    database_url: str | None,
    as_json: bool,
    payload_ttl_s: float | None,
    cohort_result_ttl_s: float | None,
    max_terminal_cohorts: int | None,
) -> None:
    """Drop what the settings, or these options, say is kept no longer.

    Identities and newest attempts stay: a request for a dropped result is answered with 409 `result_expired`. Ctrl-C
    between two batches leaves nothing half done.

    Example: cohortd prune --payload-ttl-s 604800
    """
    settings = settings_of(
        context, database_url=database_url, payload_ttl_s=payload_ttl_s, cohort_result_ttl_s=cohort_result_ttl_s,
        max_terminal_cohorts=max_terminal_cohorts,
    )  # fmt: skip
    keep = kept_by(settings.service)
    if keep.everything:
        raise SettingsError(
            "Nothing says what to drop: give --payload-ttl-s, --cohort-result-ttl-s or --max-terminal-cohorts, "
            "or set them for the service."
        )
    dropped = asyncio.run(_prune(Location.parse(settings.service.database_url), keep, quiet=as_json))
    show(
        {"results": dropped.results, "payloads": dropped.payloads},
        as_json,
        f"Dropped the results of {dropped.results} cohorts and the payloads of {dropped.payloads}.",
    )


async def _prune(location: Location, keep: Keep, *, quiet: bool) -> Dropped:
    await migrate.check(location)
    database = Database(location)
    writer = database.writer(secrets.randbits(63))
    total = Dropped()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed} cohorts"))
    try:
        with Progress(*columns, console=Console(stderr=True), disable=quiet, transient=True) as progress:
            task = progress.add_task("pruning", total=None)
            async for dropped in batches(database, writer, keep):
                total += dropped
                progress.advance(task, dropped.results + dropped.payloads)
    except (Unavailable, Clash) as error:
        raise DatabaseUnavailable(f"{error}. What was dropped before is dropped; run it again for the rest.") from error
    finally:
        await writer.close()
        await database.reading.dispose()
    return total

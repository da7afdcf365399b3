"""`cohortd release`: lifts the fence that a failed legacy run leaves (R24)."""

from __future__ import annotations

import asyncio
import functools
import secrets

import click

from cohortd.cli.common import database_option, json_option, settings_of, show
from cohortd.errors import DatabaseUnavailable, SettingsError
from cohortd.store import migrate, reads
from cohortd.store.batch import Context, transact
from cohortd.store.commands import Lift
from cohortd.store.engine import Database, Location
from cohortd.store.writer import Clash, Unavailable


@click.command()
@database_option
@json_option
@click.option("--campaign", default="default", show_default=True, help="The campaign of the failed runs.")
@click.option("--task-index", type=int, help="Every failed run with this task index.")
@click.option("--prompt-id", help="Every failed run with this prompt id.")
@click.option("--cohort", "cohort_id", type=click.UUID, help="The failed run with this cohort id.")
@click.pass_context
def release(
    context: click.Context,
    database_url: str | None,
    as_json: bool,
    campaign: str,
    task_index: int | None,
    prompt_id: str | None,
    cohort_id: object,
) -> None:
    """Let requests without a group id be judged again whose last run failed.

    A running server goes by it at once. Requests with a group id need no release: they use a higher attempt.

    Example: cohortd release --campaign default --task-index 417
    """
    if sum(given is not None for given in (task_index, prompt_id, cohort_id)) != 1:
        raise click.UsageError("Give one of --task-index, --prompt-id and --cohort.")
    location = Location.parse(settings_of(context, database_url=database_url).service.database_url)
    wanted = reads.LegacyRuns(campaign, task_index, prompt_id, None if cohort_id is None else str(cohort_id))
    released = asyncio.run(_release(location, wanted))
    if not released:
        raise SettingsError(
            f"No failed run without a group id was found there in campaign {campaign!r}; nothing was released."
        )
    show({"released": released}, as_json, f"Released {len(released)}: the next requests are judged afresh.")


async def _release(location: Location, wanted: reads.LegacyRuns) -> list[str]:
    await migrate.check(location)
    database = Database(location)
    token = secrets.randbits(63)
    writer = database.writer(token)
    try:
        ids = await reads.failed_legacy(database, wanted)
        if not ids:
            return []
        commands = [Lift(id_) for id_ in ids]
        results = await writer.run(functools.partial(transact, commands, Context(token)))
        return [id_ for id_, lifted in zip(ids, results.answers, strict=True) if lifted]
    except (Unavailable, Clash) as error:
        raise DatabaseUnavailable(f"{error}. Nothing was released; run it again.") from error
    finally:
        await writer.close()
        await database.reading.dispose()

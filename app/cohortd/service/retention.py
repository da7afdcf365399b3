"""Retention at work: small batches beside everything else, for as long as there is something to drop (R70)."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from typing import Final

import structlog
from sqlalchemy import text

from cohortd.clock import Clock
from cohortd.service_settings import ServiceSettings
from cohortd.store.engine import Database
from cohortd.store.postgres import PostgresWriter
from cohortd.store.retention import COUNT_TERMINAL, Dropped, Keep, prune
from cohortd.store.sqlite import SqliteWriter
from cohortd.store.writer import Clash, Unavailable

log = structlog.get_logger()

EVERY_S: Final = 30.0
BETWEEN_BATCHES_S: Final = 0.05


def kept_by(settings: ServiceSettings) -> Keep:
    """What the settings say is kept."""
    return Keep(settings.payload_ttl_s, settings.cohort_result_ttl_s, settings.max_terminal_cohorts)


async def excess_of(database: Database, keep: Keep) -> int:
    """By how many the settled cohorts that still hold results are too many."""
    if keep.max_terminal_cohorts is None:
        return 0
    async with database.reader() as connection:
        held = int((await connection.execute(text(COUNT_TERMINAL))).scalar_one())
    return max(0, held - keep.max_terminal_cohorts)


async def batches(database: Database, writer: SqliteWriter | PostgresWriter, keep: Keep) -> AsyncIterator[Dropped]:
    """Drop what is due, a batch each time; ends when nothing is."""
    excess = await excess_of(database, keep)
    while dropped := await writer.run(functools.partial(prune, keep, excess)):
        excess -= dropped.results
        yield dropped


class Retention:
    """A round every half minute; nothing to do unless a limit is set."""

    def __init__(
        self, database: Database, writer: SqliteWriter | PostgresWriter, settings: ServiceSettings, clock: Clock
    ) -> None:
        self._database = database
        self._writer = writer
        self._keep = kept_by(settings)
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, where something is ever dropped."""
        if not self._keep.everything:
            self._task = asyncio.create_task(self._run(), name="retention")

    @property
    def alive(self) -> bool:
        """Whether the loop runs, or need not."""
        return self._keep.everything or (self._task is not None and not self._task.done())

    async def stop(self) -> None:
        """Drop nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def round(self) -> Dropped:
        """Drop everything that is due now."""
        total = Dropped()
        async for dropped in batches(self._database, self._writer, self._keep):
            total += dropped
            await self._clock.sleep(BETWEEN_BATCHES_S)
        if total:
            log.info("retention", results=total.results, payloads=total.payloads)
        return total

    async def _run(self) -> None:
        while True:
            try:
                await self.round()
            except (Unavailable, Clash) as error:
                log.info("retention_waits", error=str(error), next="tried again in the next round")
            except Exception as error:
                log.error("retention_failed", error=type(error).__name__, next="tried again", exc_info=error)
            await self._clock.sleep(EVERY_S)

"""What happens by the clock: deadlines of cohorts that nobody touches, and settlements that somebody else wrote."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable
from typing import Any, Final

import structlog

from cohortd.clock import Clock
from cohortd.errors import DatabaseUnavailable
from cohortd.service.memory import Trimmer
from cohortd.service.waiters import Waiters
from cohortd.service_settings import ServiceSettings
from cohortd.store import reads
from cohortd.store.commands import AnswerCopies, Expire
from cohortd.store.engine import Database
from cohortd.store.scribe import Scribe

log = structlog.get_logger()

EVERY_S: Final = 1.0


class Sweeper:
    """Once a second: fails what is overdue, answers copies that wait for nobody, and wakes waiters whose cohort another process settled."""

    def __init__(
        self, database: Database, scribe: Scribe, waiters: Waiters, limits: ServiceSettings, clock: Clock
    ) -> None:
        self._database = database
        self._scribe = scribe
        self._waiters = waiters
        self._limits = limits
        self._clock = clock
        self._trimmer = Trimmer()
        self._heard: set[str] = set()
        self._news = asyncio.Event()
        self._due = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to sweep."""
        self._task = asyncio.create_task(self._run(), name="sweeper")

    @property
    def alive(self) -> bool:
        """Whether the loop runs."""
        return self._task is not None and not self._task.done()

    async def stop(self) -> None:
        """Sweep no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def settled_elsewhere(self, cohort_ids: Iterable[str]) -> None:
        """Another process says that it settled these: whoever waits here is told as soon as the rows are read."""
        self._heard.update(cohort_ids)
        if self._heard:
            self._news.set()

    def look(self) -> None:
        """Sweep at once."""
        self._due = True
        self._news.set()

    async def sweep(self) -> None:
        """One round: everything that is overdue now, everybody whose wait is over now."""
        while overdue := await reads.overdue(self._database):
            await self._scribe.put(Expire(overdue), within_s=EVERY_S)
        if copies := await reads.waiting_copies(self._database):
            await self._scribe.put(AnswerCopies(copies), within_s=EVERY_S)
        self._waiters.wake_all(await reads.settlements(self._database, self._waiters.cohorts()))
        active = await reads.active_cohorts(self._database)
        self._scribe.context.open_room = max(0, self._limits.max_active_cohorts - active)

    async def _run(self) -> None:
        while True:
            self._due = False
            await self._guarded(self._round())
            until = self._clock.monotonic() + EVERY_S
            while not self._due and (left_s := until - self._clock.monotonic()) > 0:
                with contextlib.suppress(TimeoutError):
                    await self._clock.wait_for(self._news.wait(), left_s)
                self._news.clear()
                await self._guarded(self._wake_heard())

    async def _round(self) -> None:
        await self.sweep()
        await self._trimmer.look(self._scribe.stats.commands, self._clock.monotonic())

    async def _wake_heard(self) -> None:
        heard, self._heard = self._heard, set()
        waited_for = tuple(heard.intersection(self._waiters.cohorts()))
        self._waiters.wake_all(await reads.settlements(self._database, waited_for))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """A loop that ended would let cohorts wait for ever."""
        try:
            await work
        except DatabaseUnavailable:
            return  # the scribe has said so; the next round comes by itself
        except Exception as error:  # noqa: BLE001  (whatever it is, the next round may find it gone)
            log.warning("sweep_failed", error=type(error).__name__, next="tried again in a second")

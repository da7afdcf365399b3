"""Starting and stopping the service, and whether every loop of it lives."""

from __future__ import annotations

import asyncio
import collections
import random
import secrets
from typing import Any, Final

import structlog

from cohortd.clock import Clock, SystemClock
from cohortd.cohorts.outcome import Pending
from cohortd.errors import SettingsError, remedy_of
from cohortd.failpoints import failpoint
from cohortd.judges.config import JudgeConfig
from cohortd.judges.endpoints import JudgeEndpoints
from cohortd.judges.http import AiohttpTransport, Transport
from cohortd.judges.idle import IdleProber
from cohortd.service.admission import Admission
from cohortd.service.compare import Comparer
from cohortd.service.judging import Judging
from cohortd.service.profiles import ProfileBook
from cohortd.service.retention import Retention
from cohortd.service.sweeper import Sweeper
from cohortd.service.waiters import Waiters
from cohortd.settings import Settings
from cohortd.store import claims, reads
from cohortd.store.batch import Context
from cohortd.store.commands import Results
from cohortd.store.engine import Database
from cohortd.store.scribe import Scribe, Sinks
from cohortd.store.sqlite import SqliteWriter
from cohortd.store.wakeups import News, Wakeups

log = structlog.get_logger()


def new_token() -> int:
    """A name for this start of the process: 63 random bits, never a host name or a pid that comes again."""
    return secrets.randbits(63)


class Service:
    """Admission, judging and sweeping over one database."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        *,
        transport: Transport | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.settings: Final = settings
        self.database: Final = database
        self.stopping = False
        self.settled: Final[collections.Counter[tuple[str, str]]] = collections.Counter()  # by status and failure kind
        self._clock = clock or SystemClock()
        self._transport = transport or AiohttpTransport()
        rng = rng or random.Random()  # noqa: S311  (jitter, no secret)
        context = Context(new_token(), settings.service.lease_s)
        self._writer = database.writer(context.token)
        self.waiters: Final = Waiters()
        sinks = Sinks(self._parked, self._settled, self._claimed)
        self.scribe: Final = Scribe(self._writer, context, sinks, self._clock)
        self.judges: Final = {config.name: JudgeEndpoints(config, self._clock) for config in judge_configs(settings)}
        self.judging: Final = Judging(
            self.scribe, self.judges, self._transport, self._clock, rng, claims=settings.service.role != "api"
        )
        self._prober = IdleProber(self.judges.values(), self._transport, self._clock)
        self._probing: asyncio.Task[None] | None = None
        self.comparer: Final = Comparer(self.judges, self._transport, self._clock, rng)
        self.admission: Final = Admission(self.scribe, ProfileBook(settings), settings.service)
        # One writer serves a SQLite file; on Postgres, a batch of its own holds nobody up.
        self._pruner = self._writer if isinstance(self._writer, SqliteWriter) else database.writer(context.token)
        self.retention: Final = Retention(database, self._pruner, settings.service, self._clock)
        self.sweeper: Final = Sweeper(database, self.scribe, self.waiters, settings.service, self._clock)
        self.wakeups: Final = (
            Wakeups(database.location.dsn, self._heard, self._look, self._clock)
            if database.engine == "postgresql" and settings.service.notify == "on"
            else None
        )

    async def start(self) -> None:
        """Take over what the database says is open, and begin to serve."""
        await self._refuse_single_with_open_cohorts()
        if isinstance(self._writer, SqliteWriter):
            await self._writer.execute(claims.VOID_ALL_LEASES)
        self.scribe.start()
        await self.sweeper.sweep()
        self.judging.start()
        self.sweeper.start()
        self.retention.start()
        if self.wakeups is not None:
            self.wakeups.start()
        self._probing = asyncio.create_task(self._prober.run(), name="idle probes")
        for line in self.settings.warnings():
            log.warning("setting", warning=line, next="change the setting that it names, if it was not on purpose")

    async def stop(self) -> None:
        """Store the verdicts in flight, give the leases back, and close everything; no cohort fails for it (L6)."""
        self.release_waiters()
        await self.sweeper.stop()
        await self.retention.stop()
        if self.wakeups is not None:
            await self.wakeups.stop()
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.gather(self._probing, return_exceptions=True)
        await self.judging.stop(self.settings.service.drain_s)
        await self.scribe.close()
        await self._transport.close()
        await self._writer.close()
        if self._pruner is not self._writer:
            await self._pruner.close()
        await self.database.close()

    def release_waiters(self) -> None:
        """Let everybody go who waits; whoever comes from now on is told the same (R26)."""
        self.stopping = True
        self.judging.close()
        self.waiters.release_all()
        self.admission.release_all()
        self.comparer.release_all()

    @property
    def alive(self) -> bool:
        """Whether every loop runs."""
        probing = self._probing is not None and not self._probing.done()
        loops = (self.scribe.alive, self.judging.alive, self.sweeper.alive, self.retention.alive, probing)
        return all(loops) and (self.wakeups is None or self.wakeups.alive)

    def _parked(self, pending: Pending, answer: asyncio.Future[Any]) -> None:
        failpoint("after_member_commit")
        self.waiters.park(pending, answer)

    def _settled(self, results: Results) -> None:
        for cohort_id, settlement in results.settled.items():
            self.settled[settlement.status, settlement.failure_kind or ""] += 1
            self.waiters.wake(cohort_id, settlement)
            if settlement.failure_kind is None:
                log.info("cohort_settled", cohort_id=cohort_id, attempt=settlement.attempt, status=settlement.status)
            else:
                log.warning(
                    "cohort_settled", cohort_id=cohort_id, attempt=settlement.attempt, status=settlement.status,
                    failure_kind=settlement.failure_kind, failure_reason=settlement.failure_reason,
                    next=remedy_of(settlement.failure_kind),
                )  # fmt: skip

    def _claimed(self, results: Results) -> None:
        self.judging.take(results)
        if self.wakeups is not None:
            self.wakeups.say(results.settled, work=results.unclaimed)

    def _heard(self, news: News) -> None:
        self.sweeper.settled_elsewhere(news.settled)
        if news.work:
            self.judging.look()

    def _look(self) -> None:
        self.sweeper.look()
        self.judging.look()

    async def _refuse_single_with_open_cohorts(self) -> None:
        """Groups of one are never judged: cohorts that wait would wait for ever (R5)."""
        if any(size == 1 for size in self.settings.sizes.values()):
            active = await reads.active_cohorts(self.database)
            if active:
                raise SettingsError(
                    f"num_rollouts_per_prompt is 1, but {active} cohorts of larger groups are open. "
                    "Let them finish under the old setting, or cancel them, then start again."
                )


def judge_configs(settings: Settings) -> list[JudgeConfig]:
    """The judges that this process may ask."""
    service = settings.service
    return [
        JudgeConfig(
            name,
            judge.urls,
            judge.api_key,
            judge.concurrency,
            service.judge_eject_after,
            service.max_judge_response_bytes,
        )
        for name, judge in settings.judges.items()
        if judge.urls
    ]

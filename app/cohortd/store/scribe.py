"""The scribe: the only writer of a process. What queues up while a commit is on its way is the next commit (DESIGN 4)."""

from __future__ import annotations

import asyncio
import collections
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from cohortd.clock import Clock
from cohortd.cohorts.outcome import Pending
from cohortd.errors import DatabaseUnavailable
from cohortd.store.batch import Context, transact
from cohortd.store.commands import Command, Results
from cohortd.store.writer import Clash, Unavailable, Writer

log = structlog.get_logger()

BATCH_COMMANDS: Final = 256
BATCH_BYTES: Final = 8 * 2**20  # a burst of large bodies in one commit left a WAL of 828 MB (TRIAL 5.7)
RETRY_FIRST_S: Final = 0.05
RETRY_MOST_S: Final = 1.0

Answer = asyncio.Future[Any]


@dataclass(slots=True, eq=False)
class Entry:
    """A command, who waits for its answer, and until when it is worth trying."""

    command: Command
    answer: Answer
    parks: bool  # an admission that goes on waiting for its cohort under the same future
    give_up_at: float | None  # on the scribe's clock; None: as long as the process lives


@dataclass(slots=True)
class Sinks:
    """Whom a commit is told to, in this order: waiters are registered before anybody is woken (TRIAL 5.6)."""

    park: Callable[[Pending, Answer], None]
    settled: Callable[[Results], None]
    claimed: Callable[[Results], None]


@dataclass(slots=True)
class ScribeStats:
    """Counters that metrics read."""

    commits: int = 0
    commands: int = 0
    retried: int = 0
    halved: int = 0


class Scribe:
    """Commits commands in batches and answers each after its commit; a failed batch is re-run in halves."""

    def __init__(self, writer: Writer, context: Context, sinks: Sinks, clock: Clock) -> None:
        self._writer = writer
        self._sinks = sinks
        self._clock = clock
        self._queue: collections.deque[Entry] = collections.deque()
        self._wake = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None
        self.context: Final = context
        self.stats: Final = ScribeStats()
        self.away_since: float | None = None  # on the clock, while the database does not answer

    def start(self) -> None:
        """Begin to commit."""
        self._task = asyncio.create_task(self._run(), name="scribe")

    def away_for_s(self) -> float | None:
        """For how long the database has not answered; None while it does."""
        return None if self.away_since is None else self._clock.monotonic() - self.away_since

    @property
    def queued(self) -> int:
        """Commands that wait for their commit to begin."""
        return len(self._queue)

    @property
    def alive(self) -> bool:
        """Whether the loop runs."""
        return self._task is not None and not self._task.done()

    def put(self, command: Command, *, parks: bool = False, within_s: float | None = None) -> Answer:
        """Queue a command; the future is answered after its commit.

        With `parks`, an admission whose cohort is not settled keeps its future, which then waits for the settlement.
        After `within_s` without a database the future fails with DatabaseUnavailable. Cancelling the future decides
        nothing: the command may be committed all the same.
        """
        answer: Answer = asyncio.get_running_loop().create_future()
        if self._closing:
            answer.set_exception(DatabaseUnavailable("The service is stopping; nothing is written any more."))
            return answer
        give_up_at = None if within_s is None else self._clock.monotonic() + within_s
        self._queue.append(Entry(command, answer, parks, give_up_at))
        self._wake.set()
        return answer

    async def close(self) -> None:
        """Commit what is queued, then stop; what cannot be committed is answered with DatabaseUnavailable."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        self._refuse(list(self._queue), DatabaseUnavailable("The service stopped before this was written."))
        self._queue.clear()

    async def _run(self) -> None:
        while True:
            while self._queue:
                await self._commit(self._next_batch())
                if self._closing and self.away_since is not None:
                    return
            if self._closing:
                return
            self._wake.clear()
            await self._wake.wait()

    def _next_batch(self) -> list[Entry]:
        batch: list[Entry] = []
        weight = 0
        while self._queue and len(batch) < BATCH_COMMANDS and weight < BATCH_BYTES:
            entry = self._queue.popleft()
            weight += entry.command.weight()
            batch.append(entry)
        return batch

    async def _commit(self, batch: list[Entry]) -> None:
        """Commit the batch, waiting for a database that is away; one bad command cannot harm its neighbours."""
        pause_s = RETRY_FIRST_S
        while batch:
            commands = [entry.command for entry in batch]
            try:
                results = await self._writer.run(functools.partial(transact, commands, self.context))
            except Clash:
                self.stats.retried += 1
            except Unavailable as error:
                batch[:] = await self._wait_for_database(batch, error, pause_s)
                pause_s = min(RETRY_MOST_S, pause_s * 2)
            except Exception as error:  # noqa: BLE001  (whatever it is, it is one command's, and that one is told)
                if self.context.doubt():
                    self.stats.retried += 1
                    continue
                await self._halve(batch, error)
                return
            else:
                self._tell(batch, results)
                return

    async def _wait_for_database(self, batch: list[Entry], error: Unavailable, pause_s: float) -> list[Entry]:
        """Drop whoever has waited long enough, then pause; the rest is tried again."""
        now = self._clock.monotonic()
        self.stats.retried += 1
        if self.away_since is None:
            self.away_since = now
            log.warning("database_away", error=str(error), next="commits are retried; /health/ready says 503 meanwhile")
        late = [entry for entry in batch if self._closing or (entry.give_up_at is not None and entry.give_up_at <= now)]
        self._refuse(late, DatabaseUnavailable("The database does not answer. Send the identical request again."))
        rest = [entry for entry in batch if entry not in late]
        if rest:
            await self._clock.sleep(pause_s)
        return rest

    async def _halve(self, batch: list[Entry], error: Exception) -> None:
        if len(batch) == 1:
            log.error(
                "command_failed", command=type(batch[0].command).__name__, error=type(error).__name__,
                next="this is a fault of ours: report it with its trace", exc_info=error,
            )  # fmt: skip
            self._refuse(batch, error)
            return
        self.stats.halved += 1
        middle = len(batch) // 2
        await self._commit(batch[:middle])
        await self._commit(batch[middle:])

    def _tell(self, batch: Sequence[Entry], results: Results) -> None:
        self.context.committed(results)
        self.stats.commits += 1
        self.stats.commands += len(batch)
        if self.away_since is not None:
            log.info("database_back", away_s=round(self._clock.monotonic() - self.away_since, 3))
            self.away_since = None
        answered: list[tuple[Answer, Any]] = []
        for entry, answer in zip(batch, results.answers, strict=True):
            if entry.parks and isinstance(answer, Pending) and not entry.answer.done():
                self._sinks.park(answer, entry.answer)
            else:
                answered.append((entry.answer, answer))
        self._sinks.settled(results)
        self._sinks.claimed(results)
        for future, answer in answered:
            if not future.done():
                future.set_result(answer)

    def _refuse(self, entries: Sequence[Entry], error: BaseException) -> None:
        for entry in entries:
            if not entry.answer.done():
                entry.answer.set_exception(error)

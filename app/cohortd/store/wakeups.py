"""Word from one process to the others, on Postgres: which cohorts are settled, and that there is something to judge.

NOTIFY goes off the write path, coalesced over a few milliseconds, since one inside each transaction takes a lock that all
commits share (DESIGN 6). It carries ids and decides nothing: who hears it reads the rows. What is lost, because nobody
listened yet or the connection dropped, the poll of once a second finds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import asyncpg
import structlog

from cohortd.clock import Clock
from cohortd.store.postgres import connect
from cohortd.store.writer import Clash, Unavailable

log = structlog.get_logger()

CHANNEL: Final = "cohortd"
COALESCE_S: Final = 0.005
HEARTBEAT_S: Final = 10.0
ANSWERS_WITHIN_S: Final = 5.0
RETRY_FIRST_S: Final = 0.2
RETRY_MOST_S: Final = 5.0
OTHERS: Final = """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
    AND application_name = 'cohortd wakeups' AND pid <> pg_backend_pid()"""
IDS_OF_A_MESSAGE: Final = 200  # of 37 bytes each; Postgres takes less than 8,000


@dataclass(slots=True)
class News:
    """What others should look at."""

    settled: set[str] = field(default_factory=set)
    work: bool = False  # a cohort waits for a judge, or grew in somebody else's hands

    def __bool__(self) -> bool:
        return bool(self.settled or self.work)

    def payloads(self) -> Iterable[str]:
        """The news as messages of Postgres's size."""
        ids = sorted(self.settled)
        for at in range(0, len(ids), IDS_OF_A_MESSAGE):
            yield ",".join(ids[at : at + IDS_OF_A_MESSAGE])
        if self.work:
            yield "work"

    @classmethod
    def of(cls, payload: str) -> News:
        """The news of a message."""
        return cls(work=True) if payload == "work" else cls(settled=set(payload.split(",")))


class Wakeups:
    """One connection that listens and notifies; it comes back by itself when it was lost."""

    def __init__(self, dsn: str, heard: Callable[[News], None], missed: Callable[[], None], clock: Clock) -> None:
        self._dsn = dsn
        self._heard = heard
        self._missed = missed  # called whenever it begins to listen: what was said before was not heard
        self._clock = clock
        self._connection: asyncpg.Connection[Any] | None = None
        self._in_use = asyncio.Lock()
        self._others = True  # somebody else listens; a process that is alone says nothing, which costs it nothing
        self._news = News()
        self._more = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to listen, and to pass on what is said."""
        self._loops = [
            asyncio.create_task(self._listen_loop(), name="listen"),
            asyncio.create_task(self._notify_loop(), name="notify"),
        ]

    @property
    def alive(self) -> bool:
        """Whether both loops run."""
        return bool(self._loops) and not any(loop.done() for loop in self._loops)

    @property
    def listening(self) -> bool:
        """Whether the connection stands."""
        return self._connection is not None and not self._connection.is_closed()

    @property
    def alone(self) -> bool:
        """Whether nobody else is known to listen: then nothing is said."""
        return not self._others

    async def stop(self) -> None:
        """Say and hear nothing more."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)

    def say(self, settled: Iterable[str], *, work: bool) -> None:
        """Tell the others; at once for the caller, a few milliseconds later for them."""
        self._news.settled.update(settled)
        self._news.work = self._news.work or work
        if self._news:
            self._more.set()

    async def _notify_loop(self) -> None:
        while True:
            await self._more.wait()
            await self._clock.sleep(COALESCE_S)
            self._more.clear()
            news, self._news = self._news, News()
            if not self._others:
                continue
            for payload in news.payloads():
                with contextlib.suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                    await self._execute("SELECT pg_notify($1, $2)", CHANNEL, payload)

    async def _execute(self, sql: str, *values: str) -> None:
        connection = self._connection
        if connection is not None and not connection.is_closed():
            async with self._in_use, asyncio.timeout(ANSWERS_WITHIN_S):
                await connection.execute(sql, *values)

    async def _look_around(self, connection: asyncpg.Connection[Any]) -> None:
        """Whether anybody else listens; it is the heartbeat too."""
        async with self._in_use, asyncio.timeout(ANSWERS_WITHIN_S):
            self._others = bool(await connection.fetchval(OTHERS))

    async def _listen_loop(self) -> None:
        pause_s = RETRY_FIRST_S
        while True:
            try:
                await self._listen()
                pause_s = RETRY_FIRST_S
            except (Unavailable, Clash, OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                log.info("listening_ended", error=type(error).__name__, again_in_s=pause_s)
            await self._clock.sleep(pause_s)
            pause_s = min(RETRY_MOST_S, pause_s * 2)

    async def _listen(self) -> None:
        """Listen until the connection is lost; a half-open one shows itself at the next heartbeat."""
        connection = await connect(self._dsn, "wakeups")
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        try:
            await connection.add_listener(CHANNEL, self._hear)  # type: ignore[arg-type]
            await self._look_around(connection)
            self._connection = connection
            await self._execute("SELECT pg_notify($1, $2)", CHANNEL, "work")  # so that whoever was alone knows better
            self._missed()
            while not lost.is_set():
                with contextlib.suppress(TimeoutError):
                    await self._clock.wait_for(lost.wait(), HEARTBEAT_S)
                if not lost.is_set():
                    await self._look_around(connection)
        finally:
            self._connection = None
            connection.terminate()

    def _hear(self, connection: asyncpg.Connection[Any], pid: int, _channel: str, payload: object) -> None:
        if pid != connection.get_server_pid():
            self._others = True
            self._heard(News.of(str(payload)))

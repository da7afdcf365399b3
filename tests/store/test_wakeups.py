"""Word between processes: heard without polling, coalesced, and back after the connection was lost (DESIGN 6)."""

from __future__ import annotations

import asyncio
import functools
import uuid
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest

from cohortd.clock import SystemClock
from cohortd.store.engine import Location
from cohortd.store.wakeups import IDS_OF_A_MESSAGE, News, Wakeups
from tests.store.support import processes
from tests.support.requests import expected_group
from tests.support.service import Running, happens, running

T = TypeVar("T")


class Listener:
    """One process's ear and mouth."""

    def __init__(self, url: str) -> None:
        self.news: list[News] = []
        self.begun = 0
        self.wakeups = Wakeups(Location.parse(url).dsn, self.news.append, self._begin, SystemClock())

    def _begin(self) -> None:
        self.begun += 1


def heard_of_work(listener: Listener) -> bool:
    """Whether it was told that there is something to judge."""
    return any(news.work for news in listener.news)


def heard_of(listener: Listener, ids: set[str]) -> bool:
    """Whether it was told of all these settlements."""
    return set().union(*(news.settled for news in listener.news)) == ids


def is_listening(each: Running) -> bool:
    """Whether the service hears the others."""
    wakeups = each.service.wakeups
    return wakeups is not None and wakeups.listening and not wakeups.alone


@asynccontextmanager
async def listeners(url: str, count: int) -> AsyncIterator[list[Listener]]:
    """So many, all of them listening."""
    found = [Listener(url) for _ in range(count)]
    for one in found:
        one.wakeups.start()
    await happens(lambda: all(one.begun and (count == 1 or not one.wakeups.alone) for one in found))
    try:
        yield found
    finally:
        for one in found:
            await one.wakeups.stop()


class PatientClock(SystemClock):
    """Time in which no wait runs out: nobody polls."""

    async def wait_for(self, awaitable: Awaitable[T], seconds: float) -> T:
        """The awaitable's result, however long it takes."""
        return await awaitable


# A SQLite file is served by one process: nobody else is there to be told.
on_postgres = pytest.mark.parametrize("engine", ["postgres"], indirect=True)


@on_postgres
async def test_others_hear_and_the_speaker_does_not(database_url: str) -> None:
    ids = {str(uuid.uuid4()) for _ in range(IDS_OF_A_MESSAGE * 2 + 1)}
    async with listeners(database_url, 3) as (speaker, first, second):
        speaker.wakeups.say((), work=True)
        speaker.wakeups.say(ids, work=False)
        for listener in (first, second):
            await happens(functools.partial(heard_of, listener, ids))
            assert sum(bool(news.settled) for news in listener.news) == 3  # as few messages as hold them
            await happens(functools.partial(heard_of_work, listener))
        assert not any(news.settled for news in speaker.news)


@on_postgres
async def test_a_listener_whose_connection_was_terminated_comes_back_and_reads_what_it_missed(
    database_url: str,
) -> None:
    async with listeners(database_url, 2) as (speaker, listener), processes(database_url, 1) as (process,):
        await process.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cohortd wakeups' "
            "AND datname = current_database()"
        )
        await happens(lambda: listener.begun == 2 and speaker.begun == 2 and not speaker.wakeups.alone)
        assert listener.wakeups.listening
        told = str(uuid.uuid4())
        speaker.wakeups.say([told], work=False)
        await happens(functools.partial(heard_of, listener, {told}))


@on_postgres
async def test_a_rollout_is_answered_by_word_alone_when_another_process_judged_it(database_url: str) -> None:
    """Nobody polls: the replica that waits hears of the settlement, the one that judges hears of the work."""
    async with (
        running(database_url, settings={"role": "api"}, clock=PatientClock()) as api,
        running(database_url, settings={"role": "judge"}, clock=PatientClock()) as judging,
    ):
        for each in (api, judging):
            await happens(functools.partial(is_listening, each))
        replies = await api.group("g")
        assert [reply.json()["reward"] for reply in replies] == expected_group("g")
        assert len(judging.judge.requests) == 8
        assert api.judge.requests == []


def test_news_survive_their_message() -> None:
    news = News({str(uuid.uuid4()) for _ in range(500)}, True)
    messages = list(news.payloads())
    assert max(map(len, messages)) < 8000
    heard = [News.of(message) for message in messages]
    assert set().union(*(one.settled for one in heard)) == news.settled
    assert any(one.work for one in heard)
    assert not News()


@on_postgres
async def test_what_is_said_while_nobody_listens_is_no_error(database_url: str) -> None:
    async with listeners(database_url, 1) as (speaker,):
        assert speaker.wakeups.alone
        speaker.wakeups.say([str(uuid.uuid4())], work=True)
        await asyncio.sleep(0)
        assert speaker.wakeups.alive

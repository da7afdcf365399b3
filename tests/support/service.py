"""The whole service in the test's own event loop: a real database, the real routes, and a judge in memory."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
from sqlalchemy import text

from cohortd.clock import Clock, SystemClock
from cohortd.http.app import create_app
from cohortd.http.state import HttpState
from cohortd.judges.http import Reply, TransportFault
from cohortd.mock_judge import read_pair, score_pair
from cohortd.service.supervisor import Service
from cohortd.settings import load
from cohortd.store.engine import Database, Location
from tests.support.requests import verify_body

Script = Callable[[str, str], str | int | TransportFault]


def verdict_text(first: str, second: str) -> str:
    """What the mock judge says of the two."""
    score_1, score_2, ranking = score_pair(first, second)
    return f'{{"score_1": {score_1:g}, "score_2": {score_2:g}, "ranking": {ranking:g}}}'


def problem(reply: Any) -> tuple[int, str]:
    """(status, code) of a problem document, whose form is checked."""
    assert reply.headers["content-type"] == "application/problem+json"
    document = reply.json()
    assert set(document) >= {"type", "title", "status", "detail", "code"}
    assert document["status"] == reply.status_code
    assert document["type"].endswith(document["code"])
    return reply.status_code, document["code"]


async def happens(condition: Callable[[], Any]) -> None:
    """Return when the condition holds, looked at in every turn of the loop; fail after ten seconds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  (the condition is in the service's own memory)
            await asyncio.sleep(0)


class MemoryJudge:
    """A judge behind the transport protocol: every request body is kept, answers come from a script."""

    def __init__(self, script: Script = verdict_text, *, slow_beyond_its_limit: bool = False) -> None:
        self.script = script
        self.slow = slow_beyond_its_limit
        self.requests: list[dict[str, Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0

    async def post(self, url: str, body: bytes, *, timeout_s: float, **_limits: Any) -> Reply:
        """Answer when the gate is open; a slow judge takes longer than it has."""
        request = json.loads(body)  # lone surrogates are no JSON to msgspec
        self.requests.append({"url": url, **request})
        self.waiting += 1
        try:
            await self.gate.wait()
            if self.slow:
                await asyncio.sleep(timeout_s)
                raise TransportFault("timeout", "no answer in time")
        finally:
            self.waiting -= 1
        pair = read_pair(request)
        assert pair is not None
        said = self.script(*pair)
        if isinstance(said, TransportFault):
            raise said
        if isinstance(said, int):
            return Reply(said, None, b'{"error": {"message": "scripted"}}')
        content = [{"type": "output_text", "text": said}]
        reply = {"status": "completed", "model": "memory", "output": [{"type": "message", "content": content}]}
        return Reply(200, None, json.dumps(reply).encode())  # a judge may say lone surrogates, too

    async def get(self, url: str, **_limits: Any) -> int:
        """It is there."""
        return 200

    async def close(self) -> None:
        """Nothing is open."""


class Running:
    """A started service and how to talk to it."""

    def __init__(self, service: Service, client: httpx.AsyncClient, judge: MemoryJudge) -> None:
        self.service = service
        self.client = client
        self.judge = judge

    async def verify(self, *args: Any, path: str = "/verify", **kwargs: Any) -> httpx.Response:
        """POST one rollout and wait for the reply."""
        return await self.client.post(path, json=verify_body(*args, **kwargs))

    async def group(self, name: str | None, n: int = 8, **kwargs: Any) -> list[httpx.Response]:
        """POST a whole group at once."""
        return await asyncio.gather(*(self.verify(name, slot, **kwargs) for slot in range(n)))

    def later(self, *args: Any, **kwargs: Any) -> asyncio.Task[httpx.Response]:
        """POST one rollout whose reply is awaited later; stored when `stored` says so."""
        return asyncio.create_task(self.verify(*args, **kwargs))

    async def stored(self, count: int) -> None:
        """Return when so many members are stored."""
        await self.until(lambda rows: rows[0][0] >= count, "SELECT count(*) FROM member")

    async def until(self, condition: Callable[[list[Any]], bool], sql: str) -> None:
        """Return when the rows of the query satisfy the condition; fail after ten seconds."""
        async with asyncio.timeout(10):
            while not condition(await self.rows(sql)):  # noqa: ASYNC110  (the condition is in the database)
                await asyncio.sleep(0.005)

    async def rows(self, sql: str) -> list[Any]:
        """The rows of a query."""
        async with self.service.database.reader() as connection:
            return list((await connection.execute(text(sql))).all())

    async def write(self, sql: str) -> None:
        """Run a statement as somebody with `psql` or `sqlite3` would."""
        async with self.service.database.reading.connect() as plain:
            connection = await plain.execution_options(sqlite_write=True)
            await connection.execute(text(sql))
            await connection.commit()

    async def pass_time(self, seconds: float) -> None:
        """Move the database's clock."""
        await self.write(f"UPDATE service_state SET clock_offset_ms = clock_offset_ms + {round(seconds * 1000)}")


@asynccontextmanager
async def running(
    database_url: str,
    *,
    judge: MemoryJudge | None = None,
    settings: dict[str, Any] | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[Running]:
    """A service over the database, stopped at the end."""
    environ = {
        "COHORTD_DATABASE_URL": database_url,
        "COHORTD_JUDGE_URLS": "http://judge.test/v1",
        "COHORTD_NUM_ROLLOUTS_PER_PROMPT": "8",
        "COHORTD_DRAIN_S": "0",
        "COHORTD_GENRM_PARSE_RETRY_SLEEP_S": "0",
    } | {f"COHORTD_{name.upper()}": str(value) for name, value in (settings or {}).items() if value is not None}
    for name in [name for name, value in (settings or {}).items() if value is None]:
        environ.pop(f"COHORTD_{name.upper()}", None)
    loaded = load(environ=environ)
    judge = judge or MemoryJudge()
    database = Database(Location.parse(loaded.service.database_url))
    service = Service(loaded, database, transport=judge, clock=clock or SystemClock(), rng=random.Random(1))
    await service.start()
    app = create_app(HttpState(loaded, service))
    transport = httpx.ASGITransport(app=app)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=30) as client:
            yield Running(service, client, judge)
    finally:
        await service.stop()

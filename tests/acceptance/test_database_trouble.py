"""A database that goes away under load: callers wait or are told so, loops come back, and nothing is lost (R26, L6)."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.clients import post_until_answered, rewards_of, scalar
from tests.support.postgres import PostgresServer
from tests.support.processes import MockJudge, Service, wait_until
from tests.support.requests import expected_group, verify_body

on_postgres = pytest.mark.parametrize("engine", ["postgres"])  # names the engine in the count of tests
GROUPS = [f"g{number}" for number in range(24)]
WANTED = {group: expected_group(group) for group in GROUPS}


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A Postgres of the test's own, to be stopped and started."""
    found = PostgresServer()
    found.start()
    yield found
    found.close()


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[MockJudge]:
    """A judge that takes 50 ms."""
    process = MockJudge(tmp_path, "--latency-ms", "50")
    yield process
    process.kill()


@pytest.fixture
def service(tmp_path: Path, server: PostgresServer, judge: MockJudge) -> Iterator[Service]:
    """The service over it."""
    url = server.url(server.create_database())
    settings: dict[str, Any] = {"judge_concurrency": 4, "lease_s": 2, "database_wait_s": 30}
    process = Service(tmp_path, url, judge.url, **settings)
    yield process
    process.kill()


def ready(service: Service) -> tuple[int, str]:
    """(status, what is said of the database)."""
    reply = httpx.get(f"{service.url}/health/ready", timeout=10)
    return reply.status_code, reply.json()["database"]


def live(service: Service) -> bool:
    """Whether nobody should restart it."""
    return httpx.get(f"{service.url}/health/live", timeout=5).status_code == 200


@on_postgres
@pytest.mark.rule("R26", "L6", "R41")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["stopped", "killed"])
async def test_a_database_that_is_away_for_seconds_loses_nothing(
    engine: str, how: signal.Signals, server: PostgresServer, service: Service, judge: MockJudge
) -> None:
    clients = asyncio.create_task(rewards_of(service.url, GROUPS, spread_s=1.0))
    await asyncio.to_thread(wait_until, lambda: len(judge.calls()) > 40, "judge calls")
    await asyncio.to_thread(server.stop, how)
    began = time.monotonic()
    await asyncio.to_thread(wait_until, lambda: ready(service) == (503, "away"), "not ready", 5)
    assert await asyncio.to_thread(live, service)
    late = asyncio.create_task(_late(service))
    await asyncio.to_thread(wait_until, lambda: time.monotonic() - began > 5, "five seconds")
    await asyncio.to_thread(server.start)
    await asyncio.to_thread(wait_until, lambda: ready(service) == (200, "answers"), "ready again", 10)
    assert await clients == WANTED
    assert await late == expected_group("late")
    assert len(judge.calls()) <= 8 * (len(GROUPS) + 1) + 4  # calls that were in flight when the lease was lost


async def _late(service: Service) -> list[float]:
    """A group that arrives while the database is away."""
    return (await rewards_of(service.url, ["late"]))["late"]


@on_postgres
@pytest.mark.rule("R26", "R22")
async def test_a_request_that_has_waited_long_enough_is_told_when_to_try_again(
    engine: str, server: PostgresServer, tmp_path: Path, judge: MockJudge
) -> None:
    url = server.url(await asyncio.to_thread(server.create_database))
    service = await asyncio.to_thread(Service, tmp_path, url, judge.url, database_wait_s=1)
    await asyncio.to_thread(server.stop)
    async with httpx.AsyncClient(timeout=30) as client:
        reply = await post_until_answered(client, service.url, verify_body("g", 0))
    assert (reply.status_code, reply.json()["code"]) == (503, "database_unavailable")
    assert reply.headers["retry-after"]
    await asyncio.to_thread(server.start)
    assert (await rewards_of(service.url, ["g"]))["g"] == expected_group("g")
    service.kill()


@on_postgres
@pytest.mark.rule("L6", "R41")
async def test_connections_that_are_terminated_one_by_one_cost_nothing(
    engine: str, server: PostgresServer, service: Service, judge: MockJudge
) -> None:
    url = service.database_url
    clients = asyncio.create_task(rewards_of(service.url, GROUPS, spread_s=2.0))
    rng = random.Random(3)
    killed = 0
    while not clients.done():
        victims = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'cohortd%' AND datname = current_database() AND pid <> pg_backend_pid()"
        killed += bool(
            await scalar(url, f"SELECT pg_terminate_backend(pid) FROM ({victims} OFFSET {rng.randrange(4)} LIMIT 1) v")
        )
        await asyncio.sleep(0.05)  # the pace of the killer, not a wait for anything
    assert await clients == WANTED
    assert killed > 5
    idle = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
    assert await scalar(url, idle) == 0
    assert ready(service) == (200, "answers")
    assert len(judge.calls()) == 8 * len(GROUPS)

"""`cohortd serve`: what it refuses to start on, what it creates, and how it ends (SPEC 10, 11; R5, R26, R62)."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from cohortd.store import migrate
from cohortd.store.engine import Database, Location
from tests.cli.support import Start, cohortd
from tests.support.judge_server import Call, JudgeServer, verdict
from tests.support.processes import Service
from tests.support.requests import verify_body


async def rows(database_url: str, sql: str, *, write: bool = False) -> list[Any]:
    """The rows of a query, or the effect of a statement."""
    database = Database(Location.parse(database_url))
    try:
        async with database.reading.connect() as plain:
            connection = await plain.execution_options(sqlite_write=write)
            result = await connection.execute(text(sql))
            if write:
                await connection.commit()
                return []
            return list(result.all())
    finally:
        await database.close()


# -- schema


def test_an_empty_database_gets_its_schema_and_is_served(start: Start, empty_database_url: str, tmp_path: Path) -> None:
    service = start()
    assert service.events("schema")[0]["revision"] == migrate.head()
    assert cohortd(tmp_path, "db", "check", database_url=empty_database_url).status == 0
    again = cohortd(tmp_path, "db", "current", "--json", database_url=empty_database_url)
    assert json.loads(again.out)["revision"] == migrate.head()


async def test_several_replicas_may_start_on_one_empty_database(start: Start, empty_database_url: str) -> None:
    services = [start(wait=False) for _ in range(3)]
    if empty_database_url.startswith("sqlite"):
        ended = [service for service in services if await asyncio.to_thread(_ends, service)]
        assert len(ended) == 2
        for service in ended:
            assert "Another process serves" in service.err.read_text()
        services = [service for service in services if service not in ended]
    for service in services:
        await asyncio.to_thread(service.wait_ready)
    assert len(await rows(empty_database_url, "SELECT version_num FROM alembic_version")) == 1


def _ends(service: Service) -> bool:
    """Whether it ended by itself rather than become ready."""
    try:
        service.wait_ready()
    except AssertionError:
        return True
    return False


async def test_another_schema_is_refused_with_the_command_to_run(empty_database_url: str, tmp_path: Path) -> None:
    location = Location.parse(empty_database_url)
    await migrate.upgrade(location)
    await rows(empty_database_url, "UPDATE alembic_version SET version_num = '2099_01_01_later'", write=True)
    for arguments in (["serve"], ["serve", "--migrate"]):
        newer = await asyncio.to_thread(cohortd, tmp_path, *arguments, database_url=empty_database_url)
        assert newer.status == 1
        assert "2099_01_01_later, is newer than this program's" in newer.err
        assert "Install a newer cohortd" in newer.err
    check = await asyncio.to_thread(cohortd, tmp_path, "db", "check", "--json", database_url=empty_database_url)
    assert (check.status, json.loads(check.out)["ok"]) == (1, False)


async def test_a_database_that_was_copied_away_is_not_served(empty_database_url: str, tmp_path: Path) -> None:
    await migrate.upgrade(Location.parse(empty_database_url))
    await rows(empty_database_url, "UPDATE service_state SET moved_to = 'postgres at db.internal'", write=True)
    done = await asyncio.to_thread(cohortd, tmp_path, "serve", database_url=empty_database_url)
    assert done.status == 1
    assert "postgres at db.internal" in done.err


def test_a_served_file_is_served_once_and_read_by_other_commands(start: Start, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/one.db"
    service = start(database_url=url)
    for arguments in (["serve"], ["db", "upgrade"], ["db", "downgrade", "base", "--yes"]):
        second = cohortd(tmp_path, *arguments, database_url=url)
        assert second.status == 1
        assert "Another process serves or changes one.db" in second.err
    assert cohortd(tmp_path, "db", "check", database_url=url).status == 0
    assert cohortd(tmp_path, "config", "show", database_url=url).status == 0
    assert httpx.get(f"{service.url}/health/ready").status_code == 200
    service.kill()  # the lock dies with its process
    assert cohortd(tmp_path, "db", "upgrade", database_url=url).status == 0


# -- what is not served


@pytest.mark.rule("R62")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "gym.internal"])
def test_beyond_loopback_is_refused_unless_on_purpose(host: str, tmp_path: Path) -> None:
    done = cohortd(tmp_path, "serve", "--host", host)
    assert done.status == 1
    assert "--allow-anonymous" in done.err
    half = cohortd(tmp_path, "serve", "--host", host, "--allow-anonymous")
    assert half.status == 1
    assert "--allowed-host" in half.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.rule("R62")
def test_on_purpose_it_listens_and_serves_the_hosts_that_are_named(start: Start) -> None:
    service = start(host="0.0.0.0", allow_anonymous="true", allowed_hosts="Gym.Internal")
    statuses = {
        host: httpx.get(f"{service.url}/reverify_mode", headers={"host": host}).status_code
        for host in ("gym.internal:8400", "GYM.internal", "other.internal", "localhost")
    }
    assert statuses == {"gym.internal:8400": 200, "GYM.internal": 200, "other.internal": 403, "localhost": 200}


@pytest.mark.rule("R5")
async def test_groups_of_one_are_warned_of_and_refused_while_cohorts_are_open(
    start: Start, empty_database_url: str, tmp_path: Path
) -> None:
    service = await asyncio.to_thread(start, num_rollouts_per_prompt=2)
    async with httpx.AsyncClient() as client:
        waiting = asyncio.create_task(client.post(f"{service.url}/verify", json=verify_body("g", 0)))
        async with asyncio.timeout(10):
            while not await rows(empty_database_url, "SELECT 1 FROM member"):
                pass
        await asyncio.to_thread(service.stop)
        await asyncio.gather(waiting, return_exceptions=True)
    arguments = ("serve", "--num-rollouts-per-prompt", "1")
    refused = await asyncio.to_thread(cohortd, tmp_path, *arguments, database_url=empty_database_url)
    assert refused.status == 1
    assert "1 cohorts of larger groups are open" in refused.err
    await rows(
        empty_database_url,
        "UPDATE service_state SET clock_offset_ms = clock_offset_ms + 9000000",
        write=True,
    )
    again = await asyncio.to_thread(start, num_rollouts_per_prompt=2)
    async with asyncio.timeout(10):
        while not await rows(empty_database_url, "SELECT 1 FROM cohort WHERE status = 'failed'"):
            pass
    await asyncio.to_thread(again.stop)
    single = await asyncio.to_thread(start, num_rollouts_per_prompt=1)
    assert any("no judge is asked" in line["warning"] for line in single.events("setting"))


# -- its end


@pytest.mark.rule("R26", "L6")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_with_0_after_the_verdicts_in_flight_are_stored(
    number: signal.Signals, start: Start, empty_database_url: str
) -> None:
    async def when_told(call: Call) -> None:
        await call.server.gate.wait()
        await verdict()(call)

    async with JudgeServer(when_told) as judge, httpx.AsyncClient(timeout=30) as client:
        service = await asyncio.to_thread(start, judge_url=judge.url, num_rollouts_per_prompt=2, drain_s=20)
        posts = [client.post(f"{service.url}/verify", json=verify_body("g", slot)) for slot in range(2)]
        waiting = asyncio.gather(*posts, return_exceptions=True)
        await judge.calls_arrive(2)
        service.send(number)
        assert {type(reply) for reply in await waiting} == {httpx.RemoteProtocolError}
        assert service.running
        judge.gate.set()
        assert await asyncio.to_thread(service.wait) == 0
    assert [tuple(row) for row in await rows(empty_database_url, "SELECT status, claimed_by FROM cohort")] == [
        ("completed", None)
    ]
    assert await rows(empty_database_url, "SELECT count(*) FROM comparison WHERE status = 'done'") == [(2,)]


@pytest.mark.rule("R26")
async def test_what_is_still_in_flight_after_the_drain_is_given_back(start: Start, empty_database_url: str) -> None:
    async def never(call: Call) -> None:
        await call.server.gate.wait()

    async with JudgeServer(never) as judge, httpx.AsyncClient(timeout=30) as client:
        service = await asyncio.to_thread(start, judge_url=judge.url, num_rollouts_per_prompt=2, drain_s=0.1)
        posts = [client.post(f"{service.url}/verify", json=verify_body("g", slot)) for slot in range(2)]
        waiting = asyncio.gather(*posts, return_exceptions=True)
        await judge.calls_arrive(2)
        service.send(signal.SIGTERM)
        assert await asyncio.to_thread(service.wait) == 0
        await waiting
    assert [tuple(row) for row in await rows(empty_database_url, "SELECT status, claimed_by FROM cohort")] == [
        ("judging", None)
    ]


@pytest.mark.rule("R26")
def test_ctrl_c_ends_an_idle_service_in_silence(start: Start) -> None:
    service = start()
    service.send(signal.SIGINT)
    assert service.wait() == 0
    assert not re.search(r"Traceback|KeyboardInterrupt", service.err.read_text() + service.out.read_text())

"""Judge trouble with real processes: tries outlive crashes, a shutdown is no failed try, an outage changes no reward."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import rewards_of, scalar
from tests.support.postgres import free_port
from tests.support.processes import MockJudge, Service, wait_until
from tests.support.requests import expected_group

CALLS = "SELECT count(*) FROM judge_call"


class World:
    """A judge that may be replaced, a service that may be killed, and a client that never gives up."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self.folder = folder
        self.database_url = database_url
        self.judges: list[MockJudge] = []
        self.judge_port = free_port()
        self.service_port = free_port()
        self.service: Service | None = None

    def judge(self, *options: str) -> MockJudge:
        """Start the judge with these faults."""
        self.judges.append(MockJudge(self.folder, *options, port=self.judge_port))
        return self.judges[-1]

    def serve(self, **settings: Any) -> Service:
        """Start the service, or start it again."""
        url = f"http://127.0.0.1:{self.judge_port}/v1"
        self.service = Service(self.folder, self.database_url, url, port=self.service_port, **settings)
        return self.service

    def calls_reach(self, count: int) -> None:
        """Return when so many ended calls are in the database."""
        wait_until(lambda: asyncio.run(scalar(self.database_url, CALLS)) >= count, f"{count} calls")

    def close(self) -> None:
        """Kill everything."""
        for process in (*self.judges, self.service):
            if process is not None:
                process.kill()


@pytest.fixture
def world(tmp_path: Path, database_url: str) -> Iterator[World]:
    """Nothing runs yet."""
    found = World(tmp_path, database_url)
    yield found
    found.close()


SETTINGS: dict[str, Any] = {
    "num_rollouts_per_prompt": 2, "judge_concurrency": 1, "lease_s": 2, "genrm_parse_retry_sleep_s": 0,
    "drain_s": 0, "judge_eject_after": 1000,
}  # fmt: skip


@pytest.mark.rule("R45", "R46", "R41")
async def test_a_crash_loop_does_not_multiply_tries(world: World, database_url: str) -> None:
    """Four unusable answers end a pair, however often the process dies between them."""
    judge = await asyncio.to_thread(world.judge, "--rate", "malformed=1", "--latency-ms", "30")
    service = await asyncio.to_thread(world.serve, judge_answer_retries=3, **SETTINGS)
    client = asyncio.create_task(rewards_of(service.url, ["g"], 2, masked=True))
    kills = 0
    for seen in (1, 3, 5):
        await asyncio.to_thread(world.calls_reach, seen)
        service.kill()
        kills += 1
        service = await asyncio.to_thread(world.serve, judge_answer_retries=3, **SETTINGS)
    await client
    assert await scalar(database_url, CALLS) == 8
    assert await scalar(database_url, "SELECT max(tries) FROM comparison") == 4
    assert await scalar(database_url, "SELECT count(*) FROM comparison WHERE defaulted") == 2
    assert len(judge.calls()) <= 8 + kills  # one slot: a kill cuts off one call at most


@pytest.mark.rule("R26", "R45", "L6")
async def test_a_call_that_a_shutdown_cuts_off_is_no_failed_try(world: World, database_url: str) -> None:
    slow = await asyncio.to_thread(world.judge, "--latency-ms", "60000")
    service = await asyncio.to_thread(world.serve, **SETTINGS)
    client = asyncio.create_task(rewards_of(service.url, ["g"], 2))
    for number in range(1, 4):
        await asyncio.to_thread(wait_until, lambda number=number: slow.stats()["calls"] >= number, "a call")
        service.send(signal.SIGTERM)
        await asyncio.to_thread(service.wait)
        service = await asyncio.to_thread(world.serve, **SETTINGS)
    assert await scalar(database_url, CALLS) == 0
    assert await scalar(database_url, "SELECT max(tries) FROM comparison") == 0
    slow.kill()
    await asyncio.to_thread(world.judge)
    assert await client == {"g": expected_group("g", 2)}


@pytest.mark.rule("R49", "R31")
async def test_an_outage_shorter_than_the_deadline_changes_no_reward(world: World, database_url: str) -> None:
    """The judge is not there at all, then it is: no try counts while its endpoint is out."""
    settings = SETTINGS | {"judge_eject_after": 3, "judge_concurrency": 8, "judge_transport_retries": 2}
    service = await asyncio.to_thread(world.serve, **settings)
    groups = [f"g{number}" for number in range(6)]
    client = asyncio.create_task(rewards_of(service.url, groups, 2))
    await asyncio.to_thread(wait_until, lambda: service.events("judge_down"), "the judge to be down")
    assert not client.done()
    judge = await asyncio.to_thread(world.judge)
    assert await client == {group: expected_group(group, 2) for group in groups}
    assert len(judge.calls()) == 12
    assert await scalar(database_url, "SELECT count(*) FROM comparison WHERE defaulted") == 0
    assert service.events("judge_up")


@pytest.mark.rule("R31", "R21", "R49")
async def test_an_outage_longer_than_the_deadline_ends_in_masked_failures(world: World, database_url: str) -> None:
    service = await asyncio.to_thread(world.serve, cohort_evaluation_timeout_s=2, **SETTINGS)
    assert await rewards_of(service.url, ["g"], 2, masked=True) == {"g": [0.0, 0.0]}
    assert await scalar(database_url, "SELECT failure_kind FROM cohort") == "evaluation_timeout"
    assert await scalar(database_url, "SELECT count(*) FROM member WHERE reward IS NOT NULL") == 0
    await asyncio.to_thread(world.judge)
    assert await rewards_of(service.url, ["g"], 2, masked=True) == {"g": [0.0, 0.0]}  # the same for ever (R23)

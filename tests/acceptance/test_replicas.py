"""Many processes, one truth: requests at any replica, judging by any process, on one Postgres (DESIGN 5-7)."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.clients import post_until_answered, scalar
from tests.support.processes import MockJudge, Service, wait_until
from tests.support.requests import expected_group, verify_body

SLOTS = 4


class Fleet:
    """Processes by role over one database."""

    def __init__(self, folder: Path, database_url: str, judge_url: str) -> None:
        self.folder = folder
        self.database_url = database_url
        self.judge_url = judge_url
        self.processes: list[Service] = []

    def start(self, role: str, **settings: Any) -> Service:
        """Start a process of this role."""
        named: dict[str, Any] = {"judge_concurrency": SLOTS, "lease_s": 2, "role": role} | settings
        self.processes.append(Service(self.folder, self.database_url, self.judge_url, **named))
        return self.processes[-1]

    async def rewards(self, apis: list[Service], groups: list[str]) -> dict[str, list[float]]:
        """Every rollout sent to a replica of its own luck, and to another one when its connection drops."""
        rng = random.Random(5)

        async def one(client: httpx.AsyncClient, group: str, slot: int) -> float:
            reply = await post_until_answered(client, rng.choice(apis).url, verify_body(group, slot))
            assert reply.status_code == 200, reply.text
            assert reply.json()["mask_sample"] is False
            reward: float = reply.json()["reward"]
            return reward

        async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=None)) as client:
            found = await asyncio.gather(
                *(asyncio.gather(*(one(client, group, slot) for slot in range(8))) for group in groups)
            )
        return dict(zip(groups, found, strict=True))


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[MockJudge]:
    """A judge that takes 20 ms."""
    process = MockJudge(tmp_path, "--latency-ms", "20")
    yield process
    process.kill()


@pytest.fixture
def fleet(tmp_path: Path, database_url: str, judge: MockJudge) -> Iterator[Fleet]:
    """Nothing runs yet."""
    found = Fleet(tmp_path, database_url, judge.url)
    yield found
    for process in found.processes:
        process.send(signal.SIGCONT)
        process.kill()


def test_roles_and_replicas_need_postgres(engine: str, fleet: Fleet) -> None:
    if engine == "postgres":
        fleet.start("api", judge_urls="")
        return
    refused = Service(fleet.folder, fleet.database_url, fleet.judge_url, wait=False, role="api")
    fleet.processes.append(refused)
    assert refused.wait() == 1
    assert "needs Postgres" in refused.err.read_text()


async def by_roles(fleet: Fleet, engine: str, **settings: Any) -> tuple[list[Service], list[Service]]:
    """(two that take requests, two that judge); on SQLite one process is both."""
    if engine == "sqlite":
        only = await asyncio.to_thread(fleet.start, "all", **settings)
        return [only], [only]
    started = [await asyncio.to_thread(fleet.start, role, **settings) for role in ("api", "api", "judge", "judge")]
    return started[:2], started[2:]


@pytest.mark.rule("L1", "R12", "R13")
@pytest.mark.parametrize("notify", ["on", "off"])
async def test_any_replica_takes_members_and_each_pair_is_judged_once(
    fleet: Fleet, judge: MockJudge, engine: str, notify: str
) -> None:
    groups = [f"g{number}" for number in range(24)]
    apis, _ = await by_roles(fleet, engine, notify=notify)
    assert await fleet.rewards(apis, groups) == {group: expected_group(group) for group in groups}
    assert len(judge.calls()) == 8 * len(groups)
    again = await fleet.rewards(apis, groups)
    assert again == {group: expected_group(group) for group in groups}
    assert len(judge.calls()) == 8 * len(groups)


@pytest.mark.rule("L5", "L6", "R41")
async def test_a_judging_process_that_is_killed_costs_at_most_its_slots(
    fleet: Fleet, judge: MockJudge, engine: str
) -> None:
    groups = [f"g{number}" for number in range(16)]
    apis, judging = await by_roles(fleet, engine)
    clients = asyncio.create_task(fleet.rewards(apis, groups))
    await asyncio.to_thread(wait_until, lambda: len(judge.calls()) > 30, "calls")
    judging[0].kill()
    if engine == "sqlite":
        await asyncio.to_thread(fleet.start, "all", port=judging[0].port)
    assert await clients == {group: expected_group(group) for group in groups}
    assert len(judge.calls()) <= 8 * len(groups) + SLOTS


@pytest.mark.rule("L5")
@pytest.mark.parametrize("engine", ["postgres"], indirect=True)  # one process serves a SQLite file: nobody takes over
async def test_a_process_that_slept_past_its_lease_writes_nothing_when_it_wakes(
    fleet: Fleet, judge: MockJudge, engine: str, database_url: str
) -> None:
    groups = [f"g{number}" for number in range(16)]
    apis, judging = await by_roles(fleet, engine)
    clients = asyncio.create_task(fleet.rewards(apis, groups))
    await asyncio.to_thread(wait_until, lambda: len(judge.calls()) > 30, "calls")
    judging[0].send(signal.SIGSTOP)
    assert await clients == {group: expected_group(group) for group in groups}
    verdicts = "SELECT md5(string_agg(c::text, ',' ORDER BY c.cohort_id, c.first)) FROM comparison c"
    rewards = "SELECT md5(string_agg(m::text, ',' ORDER BY m.cohort_id, m.rollout_index)) FROM member_reward m"
    before = await scalar(database_url, verdicts), await scalar(database_url, rewards)
    judging[0].send(signal.SIGCONT)
    await asyncio.to_thread(
        wait_until, lambda: judging[0].events("lease_lost") or judging[0].events("verdict_not_heard"), "the loss"
    )
    assert (await scalar(database_url, verdicts), await scalar(database_url, rewards)) == before
    more = [f"h{number}" for number in range(8)]  # and it works on
    assert await fleet.rewards(apis, more) == {group: expected_group(group) for group in more}


@pytest.mark.rule("R10", "L6")
async def test_a_replica_that_is_killed_loses_no_rollout(fleet: Fleet, judge: MockJudge, engine: str) -> None:
    groups = [f"g{number}" for number in range(16)]
    apis, _ = await by_roles(fleet, engine)
    clients = asyncio.create_task(fleet.rewards(apis, groups))
    await asyncio.to_thread(wait_until, lambda: len(judge.calls()) > 30, "calls")
    apis[-1].kill()
    await asyncio.to_thread(fleet.start, "all" if engine == "sqlite" else "api", port=apis[-1].port)
    assert await clients == {group: expected_group(group) for group in groups}


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_a_process_that_only_judges_takes_no_requests(fleet: Fleet, engine: str) -> None:
    _, judging = await by_roles(fleet, engine)
    async with httpx.AsyncClient(base_url=judging[0].url) as client:
        reply = await client.post("/verify", json=verify_body("g", 0))
        assert (reply.status_code, reply.json()["code"]) == (404, "not_found")
        assert (await client.get("/health/ready")).status_code == 200

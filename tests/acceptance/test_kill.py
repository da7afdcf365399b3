"""What survives SIGKILL: every acknowledged member, every verdict, every reward (R10, R41, L3, L6)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import rewards_of, scalar
from tests.support.processes import MockJudge, Service, wait_until
from tests.support.requests import expected_group

SLOTS = 4


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[MockJudge]:
    """A judge that takes 20 ms."""
    process = MockJudge(tmp_path, "--latency-ms", "20")
    yield process
    process.kill()


FAILPOINTS = ["after_member_commit", "after_claim", "between_verdicts@3", "after_last_verdict", "before_reply"]


@pytest.mark.rule("R10", "R41", "L3", "L6")
@pytest.mark.parametrize("failpoint", FAILPOINTS)
async def test_a_kill_at_a_failpoint_changes_no_reward(
    failpoint: str, database_url: str, judge: MockJudge, tmp_path: Path
) -> None:
    groups = ["kill-a", "kill-b"]
    settings: dict[str, Any] = {"judge_concurrency": SLOTS, "lease_s": 2}
    service = Service(tmp_path, database_url, judge.url, failpoints=failpoint, **settings)
    clients = asyncio.create_task(rewards_of(service.url, groups))
    await asyncio.to_thread(service.wait_for_output, f"failpoint: {failpoint.partition('@')[0]}")
    members = await scalar(database_url, "SELECT count(*) FROM member")
    verdicts = await scalar(database_url, "SELECT count(*) FROM comparison WHERE status = 'done'")
    service.kill()
    again = await asyncio.to_thread(Service, tmp_path, database_url, judge.url, port=service.port, **settings)
    found = await clients
    assert found == {group: expected_group(group) for group in groups}
    assert await scalar(database_url, "SELECT count(*) FROM member") == 16 >= members
    assert await scalar(database_url, "SELECT count(*) FROM comparison WHERE status = 'done'") == 16 >= verdicts
    assert len(judge.calls()) <= 16 + SLOTS
    assert again.stop() in (0, 143, -15)


@pytest.mark.rule("R41", "L6")
async def test_kills_at_random_moments_change_no_reward_and_repeat_at_most_the_slots(
    database_url: str, judge: MockJudge, tmp_path: Path
) -> None:
    groups = [f"random-{number}" for number in range(12)]
    settings: dict[str, Any] = {"judge_concurrency": SLOTS, "lease_s": 1}
    service = await asyncio.to_thread(Service, tmp_path, database_url, judge.url, **settings)
    clients = asyncio.create_task(rewards_of(service.url, groups))
    rng = random.Random(7)
    kills = 3
    for _ in range(kills):
        seen = len(judge.calls())
        target = seen + rng.randint(3, 20)
        await asyncio.to_thread(
            wait_until, lambda target=target: len(judge.calls()) >= target or clients.done(), "judge calls"
        )
        service.kill()
        service = await asyncio.to_thread(Service, tmp_path, database_url, judge.url, port=service.port, **settings)
    found = await clients
    assert found == {group: expected_group(group) for group in groups}
    calls = judge.calls()
    assert len(calls) <= 12 * 8 + kills * SLOTS
    before = len(calls)
    assert await rewards_of(service.url, groups) == found  # replayed from the rows
    assert len(judge.calls()) == before
    service.kill()

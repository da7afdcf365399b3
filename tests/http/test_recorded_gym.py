"""What NeMo Gym 0.4.0's own agent sent, and what it was told, as `ops/gym --record` kept it: the contract, to the field."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from cohortd.judges.http import TransportFault
from tests.cli.support import cohortd
from tests.support.service import MemoryJudge, Running, running, verdict_text

RECORDS = Path(__file__).parent / "recorded_gym"
SIZE = {"num_rollouts_per_prompt": 4}
PATIENT = {"cohort_collection_timeout_s": 100}  # the recorded runs had less; here a test passes the time itself

Exchange = dict[str, Any]


def exchanges(name: str, path: str = "/verify") -> list[Exchange]:
    """The recorded exchanges of a scenario with one of our routes, in the order of their replies."""
    lines = (RECORDS / f"{name}.jsonl").read_text().splitlines()
    return [exchange for line in lines if (exchange := json.loads(line))["path"] == path]


async def told(service: Running, exchange: Exchange) -> tuple[int, Any]:
    """(status, body) that the request gets now; ids of cohorts are new each time."""
    reply = await service.client.post(exchange["path"], json=exchange["sent"])
    body = reply.json()
    body.pop("cohort_id", None)
    return reply.status_code, body


def recorded(exchange: Exchange) -> tuple[int, Any]:
    """(status, body) that Gym's agent was given."""
    body = exchange["reply"] | {name: exchange["sent"][name] for name in exchange["echoed"]}
    body.pop("cohort_id", None)
    return exchange["status"], body


async def all_told(service: Running, sent: list[Exchange]) -> list[tuple[int, Any]]:
    """What all of them get when they are sent at once."""
    return list(await asyncio.gather(*(told(service, one) for one in sent)))


def rewarded(sent: list[Exchange]) -> list[Exchange]:
    """Those that got a reward."""
    return [one for one in sent if one["status"] == 200 and "failure_kind" not in one["reply"]]


def refused(sent: list[Exchange], code: str) -> list[Exchange]:
    """Those that got this problem."""
    return [one for one in sent if one["reply"].get("code") == code]


@pytest.mark.rule("R20", "R8", "R13")
async def test_gyms_rollouts_get_the_rewards_that_they_got(database_url: str) -> None:
    async with running(database_url, settings=SIZE) as service:
        sent = exchanges("all_is_well")
        assert len(sent) == 12
        assert await all_told(service, sent) == [recorded(one) for one in sent]
        assert len(service.judge.requests) == 12
        for path in ("/seed_session", "/aggregate_metrics"):
            found = exchanges("all_is_well", path)
            assert found
            assert [await told(service, one) for one in found] == [recorded(one) for one in found]


@pytest.mark.rule("R30", "R22")
async def test_gyms_agent_is_told_which_sibling_is_missing(database_url: str) -> None:
    async with running(database_url, settings=SIZE | PATIENT) as service:
        sent = [
            changed(one, "collection time of 1 s", "collection time of 100 s")
            for one in exchanges("a_sibling_is_missing")
        ]
        assert len(sent) == 9
        waiting = [asyncio.create_task(told(service, one)) for one in sent]
        await service.stored(9)
        await service.pass_time(101)
        assert [await one for one in waiting] == [recorded(one) for one in sent]
        assert service.judge.requests == []


@pytest.mark.rule("R4", "R22")
async def test_gyms_agent_is_told_of_a_slot_beyond_the_group(database_url: str) -> None:
    async with running(database_url, settings=SIZE) as service:
        sent = refused(exchanges("there_are_too_many_repeats"), "invalid_coordinates")
        assert sent
        within = changed(sent[0], r'"_ng_rollout_index": \d', '"_ng_rollout_index": 0')
        waiting = asyncio.create_task(told(service, within))
        await service.stored(1)
        assert await all_told(service, sent) == [recorded(one) for one in sent]
        assert await service.rows("SELECT count(*) FROM member") == [(1,)]
        waiting.cancel()


@pytest.mark.rule("R24", "R30", "R23")
async def test_gyms_resume_meets_the_fence_until_it_is_lifted(database_url: str, tmp_path: Path) -> None:
    async with running(database_url, settings=SIZE | PATIENT) as service:
        sent = [
            changed(one, "collection time of 3 s", "collection time of 100 s") for one in exchanges("a_rollout_hangs")
        ]
        first, again = rewarded(sent)[:8], rewarded(sent)[8:]
        timed_out = refused(sent, "collection_timeout")
        answers = [json.dumps(one["sent"]["response"], sort_keys=True) for one in timed_out]
        hung = [one for one, answer in zip(timed_out, answers, strict=True) if "of run 1 " in answer]
        resumed = [one for one, answer in zip(timed_out, answers, strict=True) if "of run 2 " in answer]
        assert (len(first), len(again)) == (8, 4)
        assert (len(hung), len(resumed)) == (3, 4)
        assert await all_told(service, first) == [recorded(one) for one in first]
        waiting = [asyncio.create_task(told(service, one)) for one in hung]
        await service.stored(8 + len(hung))
        await service.pass_time(101)
        assert [await one for one in waiting] == [recorded(one) for one in hung]
        assert await all_told(service, resumed) == [recorded(one) for one in resumed]
        assert all("stays failed until `cohortd release` lifts it" in one["reply"]["detail"] for one in resumed)
        assert len(service.judge.requests) == 8
        task = str(again[0]["sent"]["_ng_task_index"])
        done = await asyncio.to_thread(cohortd, tmp_path, "release", "--task-index", task, database_url=database_url)
        assert done.status == 0, done.err
        assert await all_told(service, again) == [recorded(one) for one in again]
        assert len(service.judge.requests) == 12


@pytest.mark.rule("R21", "R23", "R24", "R1")
async def test_gyms_rollouts_are_masked_as_they_were_until_fresh_groups_are_named(database_url: str) -> None:
    away = True

    def script(first: str, second: str) -> str | TransportFault:
        return TransportFault("connect", "refused") if away else verdict_text(first, second)

    settings = SIZE | {"cohort_evaluation_timeout_s": 1}
    async with running(database_url, judge=MemoryJudge(script), settings=settings) as service:
        sent = exchanges("the_judge_is_away")
        fresh = rewarded(sent)
        masked = [one for one in sent if one not in fresh]
        resumed = [one for one in masked if "cohortd release" in one["reply"]["failure_reason"]]
        first = [one for one in masked if one not in resumed]
        assert (len(first), len(resumed), len(fresh)) == (12, 12, 12)
        assert await all_told(service, first) == [recorded(one) for one in first]
        away, asked = False, len(service.judge.requests)
        assert await all_told(service, resumed) == [recorded(one) for one in resumed]
        assert len(service.judge.requests) == asked
        assert {one["sent"]["_ng_group_attempt"] for one in fresh} == {0}
        assert await all_told(service, fresh) == [recorded(one) for one in fresh]
        assert len(service.judge.requests) == asked + 12


@pytest.mark.rule("R11", "R8")
async def test_a_resume_after_a_killed_job_does_not_mix_with_what_it_left(database_url: str) -> None:
    async with running(database_url, settings=SIZE) as service:
        sent = exchanges("the_job_is_killed")
        conflicts = refused(sent, "response_conflict")
        fresh = [one for one in rewarded(sent) if "_ng_group_id" in one["sent"]]
        assert conflicts
        assert len(fresh) == 8
        slots = {one["sent"]["_ng_rollout_index"] for one in conflicts}
        left = [changed(one, "run 2", "run 1") for one in conflicts]  # nobody was told of these: the job was killed
        waiting = [asyncio.create_task(told(service, one)) for one in left]
        await service.stored(len(slots))
        assert await all_told(service, conflicts) == [recorded(one) for one in conflicts]
        assert await all_told(service, fresh) == [recorded(one) for one in fresh]
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()


def changed(exchange: Exchange, old: str, new: str) -> Exchange:
    """The exchange with another answer."""
    found: Exchange = json.loads(re.sub(old, new, json.dumps(exchange)))
    return found

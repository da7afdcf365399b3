"""What NeMo Gym 0.4.0's own agent sent, and what it was told, as `ops/gym --record` kept it: the contract, to the field."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cohortd.judges.http import TransportFault
from tests.support.service import MemoryJudge, Running, running

RECORDS = Path(__file__).parent / "recorded_gym"
SIZE = {"num_rollouts_per_prompt": 4}


def exchanges(name: str, path: str) -> list[dict[str, Any]]:
    """The recorded exchanges of a scenario with one of our routes."""
    lines = (RECORDS / f"{name}.jsonl").read_text().splitlines()
    return [exchange for line in lines if (exchange := json.loads(line))["path"] == path]


async def told(service: Running, exchange: dict[str, Any]) -> tuple[int, Any]:
    """(status, body) that the request gets now; ids of cohorts are new each time."""
    reply = await service.client.post(exchange["path"], json=exchange["sent"])
    body = reply.json()
    body.pop("cohort_id", None)
    return reply.status_code, body


def recorded(exchange: dict[str, Any]) -> tuple[int, Any]:
    """(status, body) that Gym's agent was given."""
    body = dict(exchange["reply"])
    body.pop("cohort_id", None)
    return exchange["status"], body


@pytest.mark.rule("R20", "R8", "R13")
async def test_gyms_rollouts_get_the_rewards_that_they_got(database_url: str) -> None:
    async with running(database_url, settings=SIZE) as service:
        sent = exchanges("all_is_well", "/verify")
        assert len(sent) == 12
        assert await asyncio.gather(*(told(service, one) for one in sent)) == [recorded(one) for one in sent]
        assert len(service.judge.requests) == 12
        for path in ("/seed_session", "/aggregate_metrics"):
            found = exchanges("all_is_well", path)
            assert found
            assert [await told(service, one) for one in found] == [recorded(one) for one in found]


@pytest.mark.rule("R30", "R22")
async def test_gyms_agent_is_told_which_sibling_is_missing(database_url: str) -> None:
    settings = SIZE | {"cohort_collection_timeout_s": 1}
    async with running(database_url, settings=settings) as service:
        sent = exchanges("a_sibling_is_missing", "/verify")
        assert len(sent) >= 3
        task = sent[0]["sent"]["_ng_task_index"]
        group = [one for one in sent if one["sent"]["_ng_task_index"] == task]
        waiting = [asyncio.create_task(told(service, one)) for one in group]
        await service.stored(len(group))
        await service.pass_time(2)
        found = [await one for one in waiting]
        assert {(status, body["code"]) for status, body in found} == {(503, "collection_timeout")}
        if len(group) == 3:
            assert found == [recorded(one) for one in group]


@pytest.mark.rule("R21", "R23", "R24")
async def test_gyms_rollouts_are_masked_as_they_were_when_the_judge_was_away(database_url: str) -> None:
    judge = MemoryJudge(lambda _first, _second: TransportFault("connect", "refused"))
    settings = SIZE | {"cohort_evaluation_timeout_s": 1}
    async with running(database_url, judge=judge, settings=settings) as service:
        sent = exchanges("the_judge_is_away", "/verify")
        first = [one for one in sent if "cohortd release" not in one["reply"]["failure_reason"]]
        resumed = [one for one in sent if one not in first]
        assert len(first) == 12
        assert resumed
        assert await asyncio.gather(*(told(service, one) for one in first)) == [recorded(one) for one in first]
        asked = len(judge.requests)
        assert [await told(service, one) for one in resumed] == [recorded(one) for one in resumed]
        assert len(judge.requests) == asked

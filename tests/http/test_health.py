"""What a process says of itself: readiness, judges that are down, metrics (R49)."""

from __future__ import annotations

import asyncio
import datetime

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cohortd.judges.http import TransportFault
from tests.support.service import MemoryJudge, Running, happens, problem, running


async def metrics(service: Running) -> dict[str, float]:
    """Every sample by name and labels."""
    reply = await service.client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    return {
        sample.name + "".join(f" {value}" for value in sample.labels.values() if value): sample.value
        for family in text_string_to_metric_families(reply.text)
        for sample in family.samples
    }


@pytest.mark.rule("R49")
async def test_a_judge_that_is_down_is_said_with_its_beginning_and_the_service_stays_ready(database_url: str) -> None:
    working = False

    def script(_first: str, _second: str) -> TransportFault | str:
        return '{"score_1": 4, "score_2": 2, "ranking": 2}' if working else TransportFault("connect", "refused")

    async with running(database_url, judge=MemoryJudge(script)) as service:
        assert (await metrics(service))["cohortd_judge_down_since_timestamp_seconds judge"] == 0
        before = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
        waiting = [service.later("g", slot) for slot in range(8)]
        await happens(lambda: service.service.judges["judge"].down_since() is not None)
        assert (await service.client.get("/health/judge")).status_code == 503
        ready = await service.client.get("/health/ready")
        assert ready.status_code == 200
        since = datetime.datetime.fromisoformat(ready.json()["judges_down_since"]["judge"])
        assert before <= since <= datetime.datetime.now(datetime.UTC)
        found = await metrics(service)
        assert abs(found["cohortd_judge_down_since_timestamp_seconds judge"] - since.timestamp()) < 1
        assert found["cohortd_judge_endpoint_out 0 judge"] == 1
        assert found["cohortd_waiting_requests"] == 8
        working = True
        assert {(await task).json()["mask_sample"] for task in waiting} == {False}
        found = await metrics(service)
        assert found["cohortd_judge_down_since_timestamp_seconds judge"] == 0
        assert found["cohortd_cohorts_settled_total completed"] == 1
        assert found["cohortd_commands_total"] >= 16


@pytest.mark.rule("R49")
async def test_cohorts_that_nobody_here_can_judge_are_listed(database_url: str) -> None:
    async with running(database_url, settings={"judge_urls": None}) as service:
        waiting = [service.later("g", slot) for slot in range(8)]
        await service.stored(8)
        ready = (await service.client.get("/health/ready")).json()
        assert ready["cohorts_without_judge"] == {"judge": 1}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.rule("R62")
async def test_metrics_are_for_this_machine(database_url: str) -> None:
    async with running(database_url) as service:
        foreign = await service.client.get("/metrics", headers={"host": "evil.example"})
        assert problem(foreign) == (403, "forbidden")

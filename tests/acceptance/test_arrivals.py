"""What in-memory services got wrong under load: verdicts lost when members arrive in odd moments (R12, R13, L3)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.clients import rewards_of, scalar
from tests.support.processes import MockJudge, Service
from tests.support.requests import expected_group

COHORTS = 300
AT_ONCE = 60


@pytest.mark.rule("R13", "R40", "L3")
async def test_300_cohorts_whose_members_arrive_at_random_are_each_judged_by_all_their_verdicts(
    database_url: str, tmp_path: Path
) -> None:
    judge = MockJudge(tmp_path, "--latency-ms", "20")
    service = await asyncio.to_thread(Service, tmp_path, database_url, judge.url)
    groups = [f"random-{number}" for number in range(COHORTS)]
    found: dict[str, list[float]] = {}
    for number, some in enumerate(groups[at : at + AT_ONCE] for at in range(0, COHORTS, AT_ONCE)):
        found |= await rewards_of(service.url, some, spread_s=0.05, seed=number)
    assert found == {group: expected_group(group) for group in groups}
    judged = await scalar(
        database_url,
        """SELECT count(*) FROM (SELECT cohort_id FROM comparison WHERE status = 'done' AND tries = 1
            GROUP BY cohort_id HAVING count(*) = 8) whole""",
    )
    assert judged == COHORTS
    assert len(judge.calls()) == COHORTS * 8
    assert service.stop() in (0, 143, -15)
    judge.kill()

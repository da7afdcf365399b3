"""Attempts, legacy runs and judges that do not listen, over restarts (R14, R15, R24, R48)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cohortd.judges.http import Reply
from tests.support.requests import expected_group
from tests.support.service import MemoryJudge, happens, problem, running, verdict_text


class StubbornJudge(MemoryJudge):
    """A judge whose call cannot be cancelled: it answers whenever it likes, to whom it may concern."""

    async def post(self, url: str, body: bytes, *, timeout_s: float, **limits: Any) -> Reply:
        """Answer in the end, whatever the caller wants."""
        work = asyncio.ensure_future(super().post(url, body, timeout_s=timeout_s, **limits))
        while not work.done():
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                continue
        return work.result()


@pytest.mark.rule("R48", "R15", "L5")
async def test_a_judge_that_ignores_cancellation_and_answers_late_is_not_heard(database_url: str) -> None:
    judge = StubbornJudge()
    async with running(database_url, judge=judge) as service:
        judge.gate.clear()
        waiting = [service.later("g", slot) for slot in range(8)]
        await happens(lambda: judge.waiting == 8)
        newer = [service.later("g", slot, attempt=1) for slot in range(8)]
        assert {problem(await task) for task in waiting} == {(503, "superseded")}
        judge.gate.set()
        assert [(await task).json()["reward"] for task in newer] == expected_group("g")
        await happens(lambda: not judge.waiting)
        done = await service.rows(
            "SELECT c.attempt, count(*) FROM comparison p JOIN cohort c ON c.id = p.cohort_id "
            "WHERE p.status = 'done' GROUP BY c.attempt"
        )
        assert done == [(1, 8)]
        assert await service.rows("SELECT status, failure_kind FROM cohort WHERE attempt = 0") == [
            ("failed", "superseded")
        ]


@pytest.mark.rule("R14", "L6")
async def test_the_newest_attempt_outlives_restarts_and_gaps_are_fine(database_url: str) -> None:
    async with running(database_url) as service:
        assert [reply.json()["reward"] for reply in await service.group("g", attempt=7)] == expected_group("g")
    async with running(database_url) as service:
        assert problem(await service.verify("g", 0, attempt=6)) == (409, "stale_attempt")
        assert "7" in (await service.verify("g", 0, attempt=6)).json()["detail"]
        assert [reply.json()["reward"] for reply in await service.group("g", attempt=70)] == expected_group("g")
        assert problem(await service.verify("g", 0, attempt=7)) == (409, "stale_attempt")
        rewards = await service.rows("SELECT reward FROM member WHERE attempt = 7 ORDER BY rollout_index")
        assert [row[0] for row in rewards] == expected_group("g")


@pytest.mark.rule("R24", "R23", "L6")
async def test_the_fence_of_a_failed_legacy_run_outlives_restarts(database_url: str) -> None:
    async with running(database_url, judge=MemoryJudge(lambda _first, _second: 400)) as service:
        assert {reply.json()["mask_sample"] for reply in await service.group(None, _ng_task_index=3)} == {True}
    async with running(database_url) as service:
        for reply in await service.group(None, _ng_task_index=3):
            assert reply.json()["mask_sample"] is True
            assert "cohortd release" in reply.json()["failure_reason"]
        assert service.judge.requests == []
        other = await service.group(None, _ng_task_index=4)
        assert [reply.json()["reward"] for reply in other] == expected_group(None)


@pytest.mark.rule("R24", "R8")
async def test_runs_of_one_legacy_key_are_judged_one_after_the_other(database_url: str) -> None:
    async with running(database_url) as service:
        for run in range(3):
            replies = await asyncio.gather(
                *(service.verify(None, slot, text=f"Run {run}, slot {slot}", _ng_task_index=3) for slot in range(8))
            )
            assert {reply.status_code for reply in replies} == {200}
        assert len(service.judge.requests) == 24
        history = await service.rows("SELECT incarnation, retired, status FROM cohort ORDER BY incarnation")
        assert [(row[0], bool(row[1]), row[2]) for row in history] == [(run, True, "completed") for run in range(3)]


@pytest.mark.rule("R37", "R46")
@pytest.mark.parametrize("policy", ["default_verdict", "fail"])
async def test_what_cannot_be_parsed_is_the_neutral_verdict_or_a_failure(database_url: str, policy: str) -> None:
    def script(first: str, second: str) -> str:
        return "nonsense" if "Answer 0" in first else verdict_text(first, second)

    settings = {"on_unparseable": policy, "judge_answer_retries": 1}
    async with running(database_url, judge=MemoryJudge(script), settings=settings) as service:
        replies = [reply.json() for reply in await service.group("g")]
        if policy == "fail":
            assert {body["failure_kind"] for body in replies} == {"judge_failed"}
            assert await service.rows("SELECT count(*) FROM member WHERE reward IS NOT NULL") == [(0,)]
            return
        assert [body.get("_ng_defaulted_comparisons", 0) for body in replies] == [1, 1, 0, 0, 0, 0, 0, 0]
        assert {body["mask_sample"] for body in replies} == {False}
        assert [body["reward"] for body in replies[2:]] == expected_group("g")[2:]

"""`POST /compare`: stateless, to the field as Gym's (SPEC 8)."""

from __future__ import annotations

import asyncio
import statistics
from typing import Any

import pytest

from cohortd.mock_judge import score_pair
from tests.support.requests import answer_text, expected_group, response
from tests.support.service import MemoryJudge, Running, problem, running

HISTORY = [{"role": "user", "content": "Describe the harbour."}]


async def compare(app: Running, n: int, path: str = "/compare", **extra: Any) -> Any:
    """POST a comparison of n responses."""
    objects = [response(answer_text("g", slot)) for slot in range(n)]
    return await app.client.post(path, json={"conversation_history": HISTORY, "response_objs": objects} | extra)


@pytest.mark.rule("R40", "R50", "R42")
async def test_a_comparison_has_gyms_shape_and_the_rewards_of_a_cohort(database_url: str) -> None:
    async with running(database_url) as app:
        body = (await compare(app, 8)).json()
        assert set(body) == {"rewards", "comparison_results", "metrics"}
        assert body["rewards"] == expected_group("g")
        assert [(r["response_i"], r["response_j"]) for r in body["comparison_results"]] == [
            (i, (i + 1) % 8) for i in range(8)
        ]
        said = [score_pair(answer_text("g", i), answer_text("g", (i + 1) % 8)) for i in range(8)]
        for result, (score_1, score_2, ranking) in zip(body["comparison_results"], said, strict=True):
            assert set(result) == {"response_i", "response_j", "judge_idx", "score_1", "score_2", "ranking"}
            assert (result["score_1"], result["score_2"], result["ranking"]) == (score_1, score_2, ranking)
            assert result["judge_idx"] == 0
        scores = [score for score_1, score_2, _ in said for score in (score_1, score_2)]
        assert body["metrics"]["mean_individual_score"] == pytest.approx(statistics.fmean(scores), abs=1e-9)
        assert body["metrics"]["std_individual_score"] == pytest.approx(statistics.pstdev(scores), abs=1e-9)
        ties = sum(1 for score_1, score_2, _ in said if score_1 == score_2)
        assert body["metrics"]["tiebreak_usage_rate"] == pytest.approx(ties / 8, abs=1e-9)
        assert [m["content"] for m in app.judge.requests[0]["input"]] == ["Describe the harbour."]
        assert (await app.rows("SELECT count(*) FROM cohort"))[0][0] == 0
        again = await compare(app, 8, path="/campaigns/other/compare")
        assert again.json() == body
        assert (await app.rows("SELECT count(*) FROM campaign"))[0][0] == 0


async def test_none_and_one_response_need_no_judge(database_url: str) -> None:
    async with running(database_url) as app:
        assert (await compare(app, 0)).json() == {"rewards": [], "comparison_results": None, "metrics": None}
        assert (await compare(app, 1)).json() == {"rewards": [3.0], "comparison_results": None, "metrics": None}
        assert not app.judge.requests


@pytest.mark.rule("R43")
async def test_the_principle_reaches_a_judge_that_uses_principles(database_url: str) -> None:
    async with running(database_url, settings={"use_principle": "true", "default_principle": "Be kind."}) as app:
        await compare(app, 2, principle="Be brief.")
        assert {request["metadata"]["principle"] for request in app.judge.requests} == {"Be brief."}
        app.judge.requests.clear()
        await compare(app, 2)
        assert {request["metadata"]["principle"] for request in app.judge.requests} == {"Be kind."}
    async with running(database_url) as app:
        await compare(app, 2, principle="Be brief.")
        assert not any("principle" in request["metadata"] for request in app.judge.requests)


@pytest.mark.rule("R25", "R48")
async def test_a_judge_that_refuses_is_a_503_without_rewards(database_url: str) -> None:
    async with running(database_url, judge=MemoryJudge(lambda a, b: 400)) as app:
        reply = await compare(app, 3)
        assert problem(reply) == (503, "judge_failed")
        assert "retry-after" not in reply.headers
        assert "rewards" not in reply.json()
        assert "scripted" not in reply.text
        assert app.judge.waiting == 0


@pytest.mark.rule("R25", "R31")
async def test_a_judge_that_is_too_slow_is_an_evaluation_timeout(database_url: str) -> None:
    judge = MemoryJudge(slow_beyond_its_limit=True)
    async with running(database_url, judge=judge, settings={"cohort_evaluation_timeout_s": 0.2}) as app:
        assert problem(await compare(app, 3)) == (503, "evaluation_timeout")


@pytest.mark.rule("R16", "R25")
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"response_objs": None}, "invalid_request"),
        ({"response_objs": {}}, "invalid_request"),
        ({"response_objs": [1, 2]}, "invalid_response"),
        ({"response_objs": [{"output": 7}, {"output": []}]}, "invalid_response"),
        ({"response_objs": [{"output": []}] * 257}, "invalid_request"),
        ({"conversation_history": "text"}, "invalid_request"),
        ({"principle": 7}, "invalid_request"),
    ],
)
async def test_what_cannot_be_compared_is_refused(change: dict[str, Any], code: str, database_url: str) -> None:
    async with running(database_url) as app:
        assert problem(await compare(app, 2, **change)) == (422, code)
        assert not app.judge.requests


@pytest.mark.rule("R17")
async def test_a_client_that_leaves_ends_its_comparison(database_url: str) -> None:
    judge = MemoryJudge()
    judge.gate.clear()
    async with running(database_url, judge=judge) as app:
        leaving = asyncio.create_task(compare(app, 3))
        await app.until(lambda rows: judge.waiting == 3, "SELECT 1")
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await app.until(lambda rows: judge.waiting == 0, "SELECT 1")


@pytest.mark.rule("R26")
async def test_a_comparison_at_shutdown_is_told_so(database_url: str) -> None:
    judge = MemoryJudge()
    judge.gate.clear()
    async with running(database_url, judge=judge) as app:
        waiting = asyncio.create_task(compare(app, 3))
        await app.until(lambda rows: judge.waiting == 3, "SELECT 1")
        app.service.release_waiters()
        reply = await waiting
        assert problem(reply) == (503, "shutting_down")
        assert reply.headers["retry-after"]
        assert problem(await compare(app, 2)) == (503, "shutting_down")
        assert problem(await app.verify("g", 0)) == (503, "shutting_down")

"""Sessions that hold nothing, and metrics over finished rollouts (SPEC 8)."""

from __future__ import annotations

from typing import Any

import pytest

from cohortd.http.session import summary
from tests.support.service import problem, running


def rows(*rewards: float, task: Any = 0, **extra: Any) -> list[dict[str, Any]]:
    """Finished rollouts of one task."""
    return [{"_ng_task_index": task, "reward": reward, **extra} for reward in rewards]


def test_statistics_are_by_task_and_over_all_with_the_deviation_of_a_sample() -> None:
    found = summary([*rows(1.0, 3.0, task=1), *rows(2.0, task=0)])
    assert found["group_level_metrics"] == [
        {
            "_ng_task_index": 0, "mean/reward": 2.0, "max/reward": 2.0, "min/reward": 2.0, "median/reward": 2.0,
            "std/reward": 0.0,
        },
        {
            "_ng_task_index": 1, "mean/reward": 2.0, "max/reward": 3.0, "min/reward": 1.0, "median/reward": 2.0,
            "std/reward": pytest.approx(2**0.5),
        },
    ]  # fmt: skip
    assert found["agent_metrics"] == {
        "mean/reward": 2.0, "max/reward": 3.0, "min/reward": 1.0, "median/reward": 2.0, "std/reward": 1.0,
    }  # fmt: skip
    assert found["key_metrics"] == {"mean/reward": 2.0}


def test_only_numbers_count_that_are_top_level_and_not_ours() -> None:
    row = {
        "reward": 1,
        "_ng_rollout_index": 5,
        "flag": True,
        "text": "7",
        "nested": {"a": 1},
        "length": 10,
        "none": None,
    }
    assert set(summary([row])["key_metrics"]) == {"mean/reward", "mean/length"}
    assert "mean/huge" not in summary([{"huge": 10**400, "reward": 1}])["agent_metrics"]


@pytest.mark.rule("R21")
def test_masked_and_failed_rows_are_left_out_and_counted() -> None:
    data = [
        *rows(4.0, 2.0),
        *rows(0.0, mask_sample=True),
        *rows(0.0, mask_sample=True, _ng_failure_class="judge_failed"),
        *rows(0.0, _ng_failure_class="agent_error"),
    ]
    found = summary(data)
    assert found["agent_metrics"]["mean/reward"] == 3.0
    assert found["agent_metrics"]["masked_rollouts"] == 3
    assert found["key_metrics"] == {"mean/reward": 3.0}
    taken_in = summary(data, ["agent_error"])
    assert taken_in["agent_metrics"]["mean/reward"] == 2.0
    assert taken_in["agent_metrics"]["masked_rollouts"] == 2
    assert taken_in["agent_metrics"]["rollouts_counted_as_zero"] == 1
    assert data[4]["reward"] == 0.0


def test_nothing_countable_gives_empty_metrics_and_never_zero() -> None:
    assert summary([]) == {"group_level_metrics": [], "agent_metrics": {}, "key_metrics": {}}
    found = summary(rows(0.0, mask_sample=True))
    assert found == {"group_level_metrics": [], "agent_metrics": {"masked_rollouts": 1}, "key_metrics": {}}


def test_rows_of_no_task_stand_in_a_group_of_their_own() -> None:
    groups = summary([*rows(1.0, task=3), *rows(5.0, task=None), *rows(7.0, task=True)])["group_level_metrics"]
    assert [(group["_ng_task_index"], group["mean/reward"]) for group in groups] == [(3, 1.0), (None, 6.0)]


async def test_the_routes_of_a_session_hold_nothing(database_url: str) -> None:
    async with running(database_url, settings={"count_failure_classes_as_zero": "agent_error"}) as app:
        for prefix in ("", "/campaigns/other"):
            seeded = await app.client.post(f"{prefix}/seed_session", json={"anything": [1]})
            assert (seeded.status_code, seeded.json()) == (200, {})
            mode = await app.client.get(f"{prefix}/reverify_mode")
            assert (mode.status_code, mode.json()) == (200, "unsupported")
            data = {"verify_responses": [*rows(4.0), *rows(0.0, _ng_failure_class="agent_error")]}
            metrics = await app.client.post(f"{prefix}/aggregate_metrics", json=data)
            assert metrics.status_code == 200
            assert metrics.json()["key_metrics"] == {"mean/reward": 2.0}
        assert problem(await app.client.post("/seed_session", json=[])) == (422, "invalid_request")
        assert problem(await app.client.post("/aggregate_metrics", json={})) == (422, "invalid_request")
        wrong = {"verify_responses": [1]}
        assert problem(await app.client.post("/aggregate_metrics", json=wrong)) == (422, "invalid_request")
        assert problem(await app.client.get("/seed_session")) == (405, "method_not_allowed")
        assert (await app.rows("SELECT count(*) FROM campaign"))[0][0] == 0

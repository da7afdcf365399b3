"""`POST /verify`, every row of its reply tables, on both engines (SPEC 3-5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.requests import answer_text, expected_group, expected_rewards, response, verify_body
from tests.support.service import MemoryJudge, problem, running, verdict_text


@pytest.mark.rule("R20", "R13", "L3")
async def test_a_whole_group_gets_its_rewards_in_any_order_of_arrival(database_url: str) -> None:
    async with running(database_url) as app:
        order = [5, 2, 7, 0, 1, 6, 3, 4]
        replies = await asyncio.gather(*(app.verify("g", slot) for slot in order))
        by_slot = {reply.json()["_ng_rollout_index"]: reply for reply in replies}
        assert [by_slot[slot].json()["reward"] for slot in range(8)] == expected_group("g")
        assert len(app.judge.requests) == 8
        body = by_slot[3].json()
        assert set(body) == {
            "responses_create_params", "response", "reward", "_ng_group_id", "_ng_group_attempt", "_ng_rollout_index", "mask_sample",
        }  # fmt: skip
        assert body["mask_sample"] is False
        assert (body["_ng_group_id"], body["_ng_group_attempt"]) == ("g", 0)
        assert body["response"] == response(answer_text("g", 3))
        rows = await app.rows("SELECT rollout_index, reward FROM member ORDER BY rollout_index")
        assert [row[1] for row in rows] == expected_group("g")


@pytest.mark.rule("R20", "R12", "R23")
async def test_a_replay_is_the_row_and_asks_no_judge(database_url: str) -> None:
    async with running(database_url) as app:
        first = [reply.json()["reward"] for reply in await app.group("g")]
        calls = len(app.judge.requests)
        again = await app.group("g")
        assert [reply.json()["reward"] for reply in again] == first
        assert len(app.judge.requests) == calls
    async with running(database_url, judge=MemoryJudge(lambda a, b: 500)) as app:
        again = await app.group("g")
        assert [reply.json()["reward"] for reply in again] == first
        assert not app.judge.requests


@pytest.mark.rule("R20")
async def test_the_echo_keeps_the_text_of_every_number_and_drops_extra_fields(database_url: str) -> None:
    async with running(database_url, settings={"num_rollouts_per_prompt": 2}) as app:
        raw = (
            '{"response":{"output":[],"n":1.50,"e":1E2,"big":12345678901234567890123,"s":"\\ud83d\\ude00"},'
            '"responses_create_params":{"input":"x","temperature":0.70},"_ng_group_id":"g","_ng_rollout_index":%d,"extra":[1.10]}'
        )
        replies = await asyncio.gather(
            *(
                app.client.post("/verify", content=raw % slot, headers={"content-type": "application/json"})
                for slot in range(2)
            )
        )
        for reply in replies:
            assert reply.status_code == 200
            assert '"n":1.50,"e":1E2,"big":12345678901234567890123' in reply.text
            assert '"temperature":0.70' in reply.text
            assert "extra" not in reply.text


@pytest.mark.rule("R12", "R10")
async def test_one_member_delivered_twice_does_not_fill_the_cohort(database_url: str) -> None:
    async with running(database_url) as app:
        waiting = [app.later("g", slot) for slot in range(7)] + [app.later("g", 3) for _ in range(5)]
        await app.stored(7)
        assert [row[0] for row in await app.rows("SELECT status FROM cohort")] == ["collecting"]
        assert not app.judge.requests
        last = await app.verify("g", 7)
        replies = await asyncio.gather(*waiting)
        assert {reply.json()["reward"] for reply in [*replies[7:], replies[3]]} == {expected_group("g")[3]}
        assert last.json()["reward"] == expected_group("g")[7]
        assert len(app.judge.requests) == 8


@pytest.mark.rule("R11", "R10")
async def test_a_conflicting_response_leaves_the_first_one_in_its_slot(database_url: str) -> None:
    async with running(database_url) as app:
        waiting = app.later("g", 0)
        await app.stored(1)
        reply = await app.verify("g", 0, text="another answer")
        assert problem(reply) == (409, "response_conflict")
        assert "gulls" not in reply.text
        assert "retry-after" not in reply.headers
        assert (await app.rows("SELECT answer FROM member"))[0][0] == answer_text("g", 0)
        rest = await asyncio.gather(waiting, *(app.verify("g", slot) for slot in range(1, 8)))
        assert [r.json()["reward"] for r in rest] == expected_group("g")


@pytest.mark.rule("R6", "R11")
async def test_a_group_is_bound_to_its_prompt_over_all_attempts(database_url: str) -> None:
    async with running(database_url) as app:
        waiting = app.later("g", 0)
        await app.stored(1)
        for attempt in (0, 1):
            reply = await app.verify("g", 1, attempt=attempt, prompt="another prompt")
            assert problem(reply) == (409, "prompt_mismatch")
        assert problem(await app.verify("g", 1, principle="be brief")) == (409, "prompt_mismatch")
        assert [tuple(row) for row in await app.rows("SELECT attempt, status FROM cohort")] == [(0, "collecting")]
        waiting.cancel()


@pytest.mark.rule("R14", "R15", "R22")
async def test_a_higher_attempt_supersedes_at_once_and_lower_ones_are_stale(database_url: str) -> None:
    async with running(database_url) as app:
        old = [app.later("g", slot, attempt=2) for slot in range(3)]
        await app.stored(3)
        newer = app.later("g", 0, attempt=7)
        for reply in await asyncio.gather(*old):
            assert problem(reply) == (503, "superseded")
            assert "retry-after" not in reply.headers
        stale = await app.verify("g", 5, attempt=2)
        assert problem(stale) == (409, "stale_attempt")
        assert "2" in stale.json()["detail"]
        assert "7" in stale.json()["detail"]
        rest = await asyncio.gather(newer, *(app.verify("g", slot, attempt=7) for slot in range(1, 8)))
        assert [reply.json()["reward"] for reply in rest] == expected_group("g")
        assert rest[0].json()["_ng_group_attempt"] == 7
        assert [
            tuple(r) for r in await app.rows("SELECT attempt, status, failure_kind FROM cohort ORDER BY attempt")
        ] == [
            (2, "failed", "superseded"),
            (7, "completed", None),
        ]


@pytest.mark.rule("R15", "L1")
async def test_attempts_that_arrive_in_one_batch_supersede_each_other(database_url: str) -> None:
    async with running(database_url, settings={"num_rollouts_per_prompt": 2}) as app:
        attempts = [app.later("g", 0, attempt=attempt) for attempt in range(4)]
        await app.until(lambda rows: rows[0][0] == 4, "SELECT count(*) FROM cohort")
        for reply in await asyncio.gather(*attempts[:3]):
            assert problem(reply) == (503, "superseded")
        rows = await app.rows("SELECT attempt, status FROM cohort ORDER BY attempt")
        assert [tuple(row) for row in rows] == [(0, "failed"), (1, "failed"), (2, "failed"), (3, "collecting")]
        last = await app.verify("g", 1, attempt=3)
        assert [last.json()["reward"], (await attempts[3]).json()["reward"]] == expected_group("g", 2)[::-1]


@pytest.mark.rule("R24")
async def test_legacy_runs_that_arrive_in_one_batch_are_told_apart(database_url: str) -> None:
    async with running(database_url, settings={"num_rollouts_per_prompt": 2}) as app:
        first = [reply.json()["reward"] for reply in await app.group(None, 2, _ng_task_index=7)]
        copy = app.later(None, 0, _ng_task_index=7)
        fresh = [app.later(None, slot, text=f"second run {slot}", _ng_task_index=7) for slot in range(2)]
        assert (await copy).json()["reward"] == first[0]
        rewards = [reply.json()["reward"] for reply in await asyncio.gather(*fresh)]
        assert rewards == expected_rewards([f"second run {slot}" for slot in range(2)])


@pytest.mark.rule("R4", "R5")
async def test_the_first_member_fixes_the_size(database_url: str) -> None:
    async with running(database_url) as app:
        waiting = app.later("g", 0, _ng_group_size=3)
        await app.stored(1)
        assert problem(await app.verify("g", 1, _ng_group_size=4)) == (409, "group_size_mismatch")
        assert problem(await app.verify("g", 3)) == (422, "invalid_coordinates")
        rest = await asyncio.gather(waiting, app.verify("g", 1), app.verify("g", 2, _ng_group_size=3))
        assert [reply.json()["reward"] for reply in rest] == expected_group("g", 3)


@pytest.mark.rule("R5", "R2")
async def test_nothing_is_written_for_what_is_refused(database_url: str) -> None:
    async with running(database_url, settings={"num_rollouts_per_prompt": None}) as app:
        assert problem(await app.verify("g", 0)) == (422, "invalid_request")
        assert problem(await app.verify("g", 9, _ng_group_size=4)) == (422, "invalid_coordinates")
        bad = verify_body("g", 0, _ng_group_size=4) | {"response": {"output": None}}
        assert problem(await app.client.post("/verify", json=bad)) == (422, "invalid_response")
        for table in ("campaign", "cohort_group", "cohort", "member", "member_body", "judging_profile"):
            assert (await app.rows(f"SELECT count(*) FROM {table}"))[0][0] == 0, table


@pytest.mark.rule("R5")
async def test_groups_of_one_get_the_default_score_and_store_nothing(database_url: str) -> None:
    async with running(database_url, settings={"num_rollouts_per_prompt": 1}) as app:
        reply = await app.client.post("/verify", json={"response": {"output": []}, "_ng_rollout_index": "whatever"})
        assert reply.status_code == 200
        assert reply.json()["reward"] == 3.0
        assert problem(await app.verify("g", 0, _ng_group_size=2)) == (422, "invalid_coordinates")
        assert (await app.rows("SELECT count(*) FROM cohort"))[0][0] == 0


@pytest.mark.rule("R21", "R23", "R48", "R45")
async def test_a_judge_failure_is_a_masked_200_with_the_whole_request(database_url: str) -> None:
    judge = MemoryJudge(lambda a, b: 400)
    async with running(database_url, judge=judge) as app:
        extras: dict[str, Any] = {
            "agent_ref": {"name": "a"},
            "instance_config": {"k": 1.50},
            "verifier_metadata": [1, "x"],
            "task_index": 7,
        }
        replies = await app.group("g", **extras)
        for slot, reply in enumerate(replies):
            assert reply.status_code == 200
            body = reply.json()
            assert body["reward"] == 0.0
            assert body["mask_sample"] is True
            assert body["failure_kind"] == body["_ng_failure_class"] == "judge_failed"
            assert body["failure_reason"] == body["_ng_failure_judge_error"]
            assert "HTTP 400" in body["failure_reason"]
            assert "judge#0" in body["failure_reason"]
            assert "scripted" not in body["failure_reason"]
            assert "gulls" not in body["failure_reason"]
            assert body["instance_config"] == {"k": 1.5, "mask_sample": True}
            assert body["_ng_task_index"] == 7
            assert "task_index" not in body
            assert body["agent_ref"] == {"name": "a"}
            assert body["verifier_metadata"] == [1, "x"]
            assert body["response"] == response(answer_text("g", slot))
        asked = len(app.judge.requests)
        again = await app.verify("g", 0, text="whatever body", **extras)
        assert again.json()["failure_reason"] == replies[0].json()["failure_reason"]
        assert len(app.judge.requests) == asked
        assert {row[0] for row in await app.rows("SELECT reward FROM member")} == {None}
        assert (await app.rows("SELECT message FROM judge_call"))[0][0] == "scripted"


@pytest.mark.rule("R21")
@pytest.mark.parametrize("config", [None, "text", [1], 7])
async def test_an_instance_config_that_is_no_object_becomes_the_mask(config: Any, database_url: str) -> None:
    async with running(
        database_url, judge=MemoryJudge(lambda a, b: 422), settings={"num_rollouts_per_prompt": 2}
    ) as app:
        for reply in await app.group("g", 2, instance_config=config):
            assert reply.json()["instance_config"] == {"mask_sample": True}


@pytest.mark.rule("R31", "L4")
async def test_an_evaluation_that_takes_too_long_is_masked_and_named_in_sql(database_url: str) -> None:
    judge = MemoryJudge()
    judge.gate.clear()
    async with running(database_url, judge=judge) as app:
        waiting = [app.later("g", slot) for slot in range(8)]
        await app.until(lambda rows: rows == [("judging",)], "SELECT status FROM cohort")
        await app.pass_time(1801)
        replies = await asyncio.gather(*waiting)
        assert {reply.json()["failure_kind"] for reply in replies} == {"judge_failed"}
        assert {reply.json()["mask_sample"] for reply in replies} == {True}
        assert (await app.rows("SELECT failure_kind FROM cohort"))[0][0] == "evaluation_timeout"
        judge.gate.set()
        assert judge.waiting == 0  # its calls were cancelled and awaited


@pytest.mark.rule("R30", "R22", "L4")
async def test_a_cohort_that_does_not_fill_fails_naming_the_missing_slots(database_url: str) -> None:
    async with running(database_url) as app:
        waiting = [app.later("g", slot) for slot in (0, 1, 2, 4, 5, 6)]
        await app.stored(6)
        await app.pass_time(1801)
        late = await app.verify("g", 3)
        for reply in [late, *await asyncio.gather(*waiting)]:
            assert problem(reply) == (503, "collection_timeout")
            assert "retry-after" not in reply.headers
            assert reply.json()["missing_rollout_indices"] == [3, 7]
            assert "3, 7" in reply.json()["detail"]
        assert (await app.rows("SELECT count(*) FROM member WHERE answer IS NOT NULL"))[0][0] == 6


@pytest.mark.rule("R37", "R46")
async def test_a_member_of_only_defaulted_verdicts_is_masked_with_its_reward(database_url: str) -> None:
    def script(first: str, second: str) -> str:
        return "no verdict" if answer_text("g", 0) in (first, second) else verdict_text(first, second)

    async with running(database_url, judge=MemoryJudge(script)) as app:
        replies = [reply.json() for reply in await app.group("g", instance_config={"a": 1})]
        assert replies[0]["mask_sample"] is True
        assert replies[0]["instance_config"] == {"a": 1, "mask_sample": True}
        assert replies[0]["_ng_defaulted_comparisons"] == 2
        assert replies[0]["reward"] == 3.0
        assert [reply.get("_ng_defaulted_comparisons") for reply in replies[1:]] == [1, None, None, None, None, None, 1]
        assert not any(reply["mask_sample"] for reply in replies[1:])
        assert (await app.rows("SELECT count(*) FROM comparison WHERE defaulted"))[0][0] == 2


@pytest.mark.rule("R8", "R24")
async def test_a_legacy_run_is_judged_afresh_and_its_failure_is_a_fence(database_url: str) -> None:
    async with running(database_url) as app:
        first = await app.group(None, _ng_task_index=7)
        assert {reply.json()["_ng_group_id"] for reply in first} == {None}
        texts = [f"second run {slot}" for slot in range(8)]
        second = await asyncio.gather(
            *(app.verify(None, slot, text=texts[slot], _ng_task_index=7) for slot in range(8))
        )
        assert [reply.json()["reward"] for reply in second] == expected_rewards(texts)
        assert len(app.judge.requests) == 16
        app.judge.script = lambda a, b: 400
        third = await asyncio.gather(
            *(app.verify(None, slot, text=f"third {slot}", _ng_task_index=7) for slot in range(8))
        )
        assert {reply.json()["mask_sample"] for reply in third} == {True}
        app.judge.script = verdict_text
        fenced = await app.verify(None, 0, text="fourth", _ng_task_index=7)
        assert fenced.json()["mask_sample"] is True
        assert "_ng_group_id" in fenced.json()["failure_reason"]
        rows = await app.rows("SELECT incarnation, status, retired FROM cohort ORDER BY incarnation")
        assert [(r[0], r[1], bool(r[2])) for r in rows] == [
            (0, "completed", True),
            (1, "completed", True),
            (2, "failed", False),
        ]


@pytest.mark.rule("R24")
async def test_a_legacy_run_of_exact_copies_is_answered_without_judging(database_url: str) -> None:
    async with running(database_url) as app:
        first = [reply.json()["reward"] for reply in await app.group(None, _ng_task_index=7)]
        again = [reply.json()["reward"] for reply in await app.group(None, _ng_task_index=7)]
        assert again == first
        assert len(app.judge.requests) == 8
        waiting = app.later(None, 0, _ng_task_index=7)
        await app.stored(17)
        await app.pass_time(61)
        assert (await waiting).json()["reward"] == first[0]
        assert len(app.judge.requests) == 8
        fresh = [reply.json()["reward"] for reply in await app.group(None, _ng_task_index=7, principle=None)]
        assert fresh == first


@pytest.mark.rule("R17")
async def test_a_client_that_leaves_changes_nothing(database_url: str) -> None:
    async with running(database_url) as app:
        leaving = app.later("g", 0)
        await app.stored(1)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        rest = await asyncio.gather(*(app.verify("g", slot) for slot in range(1, 8)))
        assert [reply.json()["reward"] for reply in rest] == expected_group("g")[1:]
        assert (await app.verify("g", 0)).json()["reward"] == expected_group("g")[0]

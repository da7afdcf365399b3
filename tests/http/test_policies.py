"""Policies of a profile: judging early, going on without the missing, the next incarnation (R34, R35, R36)."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from cohortd.judges.http import TransportFault
from tests.support.requests import answer_text, expected_group, expected_rewards
from tests.support.service import MemoryJudge, problem, running, verdict_text

EARLY = {"judge_start": "as_pairs_arrive"}
PRESENT = {"on_incomplete": "judge_present", "cohort_collection_timeout_s": 100}
DONE = "SELECT count(*) FROM comparison WHERE status = 'done'"


@pytest.mark.rule("R36", "R13")
@pytest.mark.parametrize("seed", range(4))
async def test_rewards_are_the_same_when_pairs_are_judged_as_they_arrive(database_url: str, seed: int) -> None:
    order = list(range(8))
    random.Random(seed).shuffle(order)
    async with running(database_url, settings=EARLY) as service:
        waiting = []
        for at, slot in enumerate(order):
            waiting.append((slot, service.later("g", slot)))
            await service.stored(at + 1)
        replies = {slot: (await task).json() for slot, task in waiting}
        assert [replies[slot]["reward"] for slot in range(8)] == expected_group("g")
        assert len(service.judge.requests) == 8


@pytest.mark.rule("R36")
async def test_judging_overlaps_the_arrival_of_siblings(database_url: str) -> None:
    async with running(database_url, settings=EARLY) as service:
        waiting = [service.later("g", slot) for slot in range(7)]
        # Six pairs of the circle are there; the two of slot 7 are not.
        await service.until(lambda rows: rows[0][0] == 6, DONE)
        assert await service.rows("SELECT status, fence FROM cohort") == [("collecting", 1)]
        assert not any(task.done() for task in waiting)
        assert await service.rows("SELECT count(*) FROM member WHERE reward IS NOT NULL") == [(0,)]
        last = await service.verify("g", 7)
        rewards = [(await task).json()["reward"] for task in waiting] + [last.json()["reward"]]
        assert rewards == expected_group("g")
        assert len(service.judge.requests) == 8


@pytest.mark.rule("R36", "L6")
async def test_a_restart_while_siblings_are_missing_keeps_the_early_verdicts(database_url: str) -> None:
    judge = MemoryJudge()
    async with running(database_url, judge=judge, settings=EARLY) as service:
        waiting = [service.later("g", slot) for slot in range(7)]
        await service.until(lambda rows: rows[0][0] == 6, DONE)
    await asyncio.gather(*waiting, return_exceptions=True)
    async with running(database_url, judge=judge, settings=EARLY) as service:
        replies = await service.group("g")
        assert [reply.json()["reward"] for reply in replies] == expected_group("g")
    assert len(judge.requests) == 8


@pytest.mark.rule("R36")
@pytest.mark.parametrize("fault", ["nonsense", 400, TransportFault("connect", "refused")])
async def test_an_early_pair_without_a_verdict_fails_nobody_and_is_judged_afresh_when_full(
    database_url: str, fault: Any
) -> None:
    broken = True

    def script(first: str, second: str) -> Any:
        return fault if broken and first == answer_text("g", 0) else verdict_text(first, second)

    settings = EARLY | {"judge_transport_retries": 0, "judge_answer_retries": 1, "judge_eject_after": 1000}
    async with running(database_url, judge=MemoryJudge(script), settings=settings) as service:
        waiting = [service.later("g", slot) for slot in range(7)]
        await service.until(lambda rows: rows[0][0] == 5, DONE)
        await service.until(lambda rows: rows[0][0] >= 1, "SELECT count(*) FROM judge_call WHERE outcome <> 'ok'")
        assert await service.rows("SELECT status, defaulted FROM comparison WHERE first = 0") == [("planned", 0)]
        broken = False
        last = await service.verify("g", 7)
        rewards = [(await task).json()["reward"] for task in waiting] + [last.json()["reward"]]
        assert rewards == expected_group("g")
        early = await service.rows("SELECT DISTINCT early FROM judge_call WHERE first = 0 AND outcome <> 'ok'")
        assert [bool(row[0]) for row in early] == [True]


@pytest.mark.rule("R36", "R45")
async def test_early_tries_cost_the_full_cohort_nothing_and_are_not_repeated_meanwhile(database_url: str) -> None:
    judge = MemoryJudge(lambda _first, _second: "nonsense")
    settings = EARLY | {"judge_answer_retries": 1, "num_rollouts_per_prompt": 3}
    async with running(database_url, judge=judge, settings=settings) as service:
        first = service.later("g", 0, _ng_group_size=3)
        second = service.later("g", 1, _ng_group_size=3)
        await service.until(lambda rows: rows[0][0] == 2, "SELECT count(*) FROM judge_call")
    await asyncio.gather(first, second, return_exceptions=True)
    async with running(database_url, judge=judge, settings=settings) as service:
        replies = await asyncio.gather(*(service.verify("g", slot, _ng_group_size=3) for slot in range(3)))
        # Two early tries of one pair; then two of each of the three, and the neutral verdict.
        assert len(judge.requests) == 2 + 6
        assert [reply.json()["mask_sample"] for reply in replies] == [True, True, True]
        assert await service.rows("SELECT count(*) FROM comparison WHERE defaulted") == [(3,)]


@pytest.mark.rule("R34")
@pytest.mark.parametrize("early", [False, True])
async def test_a_cohort_goes_on_with_those_that_are_present(database_url: str, early: bool) -> None:
    present = [0, 1, 3, 4, 5, 7]
    settings = PRESENT | (EARLY if early else {})
    async with running(database_url, settings=settings) as service:
        waiting = {slot: service.later("g", slot, instance_config={"kept": 1}) for slot in present}
        await service.stored(len(present))
        if early:  # (0, 1), (3, 4), (4, 5) and (7, 0) are pairs of the new circle too
            await service.until(lambda rows: rows[0][0] == 4, DONE)
        await service.pass_time(101)
        replies = {slot: (await task).json() for slot, task in waiting.items()}
        expected = expected_rewards([answer_text("g", slot) for slot in present])
        assert [replies[slot]["reward"] for slot in present] == expected
        for reply in replies.values():
            assert reply["mask_sample"] is True
            assert reply["instance_config"] == {"kept": 1, "mask_sample": True}
            assert reply["_ng_missing_rollout_indices"] == [2, 6]
        assert len(service.judge.requests) == 6
        unused = await service.rows("SELECT first, second FROM comparison WHERE status = 'unused' ORDER BY position")
        assert sorted(map(tuple, unused)) == [(1, 2), (2, 3), (5, 6), (6, 7)]
        assert problem(await service.verify("g", 2)) == (409, "cohort_closed")
        again = await service.verify("g", 0, instance_config={"kept": 1})
        assert again.json() == replies[0]


@pytest.mark.rule("R34")
async def test_rewards_of_an_incomplete_cohort_may_be_left_unmasked(database_url: str) -> None:
    settings = PRESENT | {"partial_rewards_unmasked": "true"}
    async with running(database_url, settings=settings) as service:
        waiting = [service.later("g", slot) for slot in range(3)]
        await service.stored(3)
        await service.pass_time(101)
        replies = [(await task).json() for task in waiting]
        assert [reply["reward"] for reply in replies] == expected_group("g", 3)
        assert {reply["mask_sample"] for reply in replies} == {False}


@pytest.mark.rule("R34", "R30")
async def test_too_few_present_members_fail_as_ever(database_url: str) -> None:
    async with running(database_url, settings=PRESENT | {"min_members": 4}) as service:
        waiting = [service.later("g", slot) for slot in range(3)]
        await service.stored(3)
        await service.pass_time(101)
        assert {problem(await task) for task in waiting} == {(503, "collection_timeout")}
        assert service.judge.requests == []


@pytest.mark.rule("R34", "R21")
async def test_a_masked_failure_of_an_incomplete_cohort_names_the_absent(database_url: str) -> None:
    judge = MemoryJudge(lambda _first, _second: 400)
    async with running(database_url, judge=judge, settings=PRESENT) as service:
        waiting = [service.later("g", slot) for slot in (0, 1, 2)]
        await service.stored(3)
        await service.pass_time(101)
        for task in waiting:
            body = (await task).json()
            assert (body["failure_kind"], body["_ng_missing_rollout_indices"]) == ("judge_failed", [3, 4, 5, 6, 7])


@pytest.mark.rule("R34", "R33")
async def test_the_late_member_itself_closes_a_cohort_that_goes_on(database_url: str) -> None:
    async with running(database_url, settings=PRESENT) as service:
        await service.service.sweeper.stop()
        waiting = [service.later("g", slot) for slot in range(7)]
        await service.stored(7)
        await service.pass_time(101)
        assert problem(await service.verify("g", 7)) == (409, "cohort_closed")
        assert [(await task).json()["reward"] for task in waiting] == expected_group("g", 7)


@pytest.mark.rule("R35")
async def test_the_same_identity_may_be_judged_again_after_a_failure(database_url: str) -> None:
    working = False

    def script(first: str, second: str) -> Any:
        return verdict_text(first, second) if working else 400

    settings = {"on_failed_retry": "same_identity"}
    async with running(database_url, judge=MemoryJudge(script), settings=settings) as service:
        assert {reply.json()["mask_sample"] for reply in await service.group("g")} == {True}
        working = True
        assert [reply.json()["reward"] for reply in await service.group("g")] == expected_group("g")
        history = await service.rows("SELECT incarnation, retired, status FROM cohort ORDER BY incarnation")
        assert [(row[0], bool(row[1]), row[2]) for row in history] == [(0, True, "failed"), (1, False, "completed")]


@pytest.mark.rule("R4", "R34", "R36")
async def test_policies_are_frozen_with_the_cohort(database_url: str) -> None:
    async with running(database_url, settings=PRESENT) as service:
        first = [service.later("g", slot) for slot in range(3)]
        await service.stored(3)
    await asyncio.gather(*first, return_exceptions=True)
    changed = {"on_incomplete": "fail", "cohort_collection_timeout_s": 5, "comparison_strategy": "all_pairs"}
    async with running(database_url, settings=changed) as service:
        waiting = [service.later("g", slot) for slot in range(3)]
        await service.pass_time(50)
        await service.service.sweeper.sweep()
        assert await service.rows("SELECT status FROM cohort") == [("collecting",)]
        await service.pass_time(51)
        replies = [(await task).json() for task in waiting]
        assert [reply["reward"] for reply in replies] == expected_group("g", 3)
        assert await service.rows(DONE) == [(3,)]


@pytest.mark.rule("R38")
async def test_a_long_answer_is_cut_in_the_middle_for_the_judge_alone(database_url: str) -> None:
    long = "begin " + "x" * 5000 + " end"
    async with running(database_url, settings={"max_answer_chars": 100}) as service:
        replies = await asyncio.gather(
            *(service.verify("g", slot, text=long if slot == 1 else f"short {slot}") for slot in range(8))
        )
        assert {reply.json()["mask_sample"] for reply in replies} == {False}
        shown = {
            request["metadata"][side] for request in service.judge.requests for side in ("response_1", "response_2")
        }
        [cut] = [text for text in shown if text.startswith("begin")]
        assert len(cut) <= 100
        assert cut.endswith("end")
        assert await service.rows("SELECT answer, answer_cut FROM member WHERE rollout_index = 1") == [(long, True)]
        assert await service.rows("SELECT count(*) FROM member WHERE answer_cut") == [(1,)]


@pytest.mark.rule("R38", "R21")
async def test_a_long_answer_may_fail_its_cohort_before_any_call(database_url: str) -> None:
    settings = {"max_answer_chars": 100, "on_long_answer": "fail"}
    async with running(database_url, settings=settings) as service:
        replies = [
            reply.json()
            for reply in await asyncio.gather(
                *(service.verify("g", slot, text="x" * 101 if slot == 5 else "short") for slot in range(8))
            )
        ]
        assert {body["failure_kind"] for body in replies} == {"judge_failed"}
        assert "slot 5" in replies[0]["failure_reason"]
        assert service.judge.requests == []

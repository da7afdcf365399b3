"""Deadlines are instants of the database's clock: each cohort has exactly one disposition, whoever finds it (L4, R30-R33)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cohortd.store.commands import Expire, Held, Kept, Lost, RecordVerdict, Verdict
from tests.support.requests import answer_text, expected_group
from tests.support.service import MemoryJudge, Running, happens, problem, running, verdict_text

SHORT: dict[str, Any] = {"cohort_collection_timeout_s": 100, "cohort_evaluation_timeout_s": 50}


async def only_cohort(service: Running) -> tuple[Held, str]:
    """(the cohort under its present fence, its status)."""
    [(id_, fence, status)] = await service.rows("SELECT id, fence, status FROM cohort")
    return Held(str(id_), fence), status


async def verdicts(service: Running, *, last: bool = True) -> list[RecordVerdict]:
    """Every verdict of the one cohort of group `g`, as its holder would store them."""
    held, _ = await only_cohort(service)
    profile = service.service.scribe.context.profile((await service.rows("SELECT profile_digest FROM cohort"))[0][0])
    found = []
    for slot in range(8):
        pair = slot, (slot + 1) % 8
        text = verdict_text(*(answer_text("g", each) for each in pair))
        scores = [float(part.split(":")[1]) for part in text.strip("{}").split(",")]
        verdict = Verdict(*pair, 0, scores[0], scores[1], scores[2], False, False)
        found.append(RecordVerdict(held, verdict, None, text, profile, last=last and slot == 7))
    return found


async def judged_by_hand(service: Running) -> list[asyncio.Task[Any]]:
    """A full cohort in the hands of the service, whose judge does not answer."""
    service.judge.gate.clear()
    waiting = [service.later("g", slot) for slot in range(8)]
    await service.until(lambda rows: rows == [("judging",)], "SELECT status FROM cohort")
    await service.service.sweeper.stop()
    return waiting


@pytest.mark.rule("R30", "R33", "L4")
async def test_a_last_member_after_the_deadline_fails_the_cohort_itself(database_url: str) -> None:
    async with running(database_url, settings=SHORT) as service:
        await service.service.sweeper.stop()
        waiting = [service.later("g", slot) for slot in range(7)]
        await service.stored(7)
        await service.pass_time(101)
        assert problem(await service.verify("g", 7)) == (503, "collection_timeout")
        replies = [await task for task in waiting]
        assert {problem(reply) for reply in replies} == {(503, "collection_timeout")}
        assert replies[0].json()["missing_rollout_indices"] == [7]
        assert await service.rows("SELECT count(*) FROM member") == [(7,)]
        assert await service.rows("SELECT count(*) FROM cohort") == [(1,)]
        assert service.judge.requests == []


@pytest.mark.rule("R30", "R33")
async def test_a_last_member_in_time_is_judged_however_late_that_is_noticed(database_url: str) -> None:
    async with running(database_url, settings=SHORT) as service:
        await service.pass_time(0)
        waiting = [service.later("g", slot) for slot in range(7)]
        await service.stored(7)
        await service.pass_time(99)
        last = await service.verify("g", 7)
        await service.pass_time(1000)
        await service.service.sweeper.sweep()
        assert [(await task).json()["reward"] for task in waiting] + [last.json()["reward"]] == expected_group("g")


@pytest.mark.rule("R30")
async def test_repeats_do_not_extend_the_collection_time(database_url: str) -> None:
    async with running(database_url, settings=SHORT) as service:
        first = service.later("g", 0)
        await service.stored(1)
        await service.pass_time(60)
        again = service.later("g", 0)
        await service.pass_time(41)
        assert problem(await first) == problem(await again) == (503, "collection_timeout")


@pytest.mark.rule("R30", "L4")
async def test_what_was_overdue_while_nothing_ran_is_failed_at_the_start(database_url: str) -> None:
    judge = MemoryJudge()
    async with running(database_url, judge=judge, settings=SHORT) as service:
        waiting = [service.later("g", slot) for slot in range(5)]
        await service.stored(5)
        await service.pass_time(101)
    await asyncio.gather(*waiting, return_exceptions=True)
    async with running(database_url, judge=judge, settings=SHORT) as service:
        [row] = await service.rows("SELECT status, failure_kind, failure_reason FROM cohort")
        assert row[:2] == ("failed", "collection_timeout")
        assert "slots 5, 6, 7" in row[2]
        assert problem(await service.verify("g", 6)) == (503, "collection_timeout")
        answers = await service.rows("SELECT answer FROM member ORDER BY rollout_index")
        assert [row[0] for row in answers] == [answer_text("g", slot) for slot in range(5)]
    assert judge.requests == []


@pytest.mark.rule("R31", "L4")
async def test_an_evaluation_that_was_overdue_while_nothing_ran_is_failed_at_the_start(database_url: str) -> None:
    judge = MemoryJudge()
    async with running(database_url, judge=judge, settings=SHORT) as service:
        waiting = await judged_by_hand(service)
        await service.pass_time(51)
    await asyncio.gather(*waiting, return_exceptions=True)
    judge.gate.set()
    async with running(database_url, judge=judge, settings=SHORT) as service:
        assert await service.rows("SELECT status, failure_kind FROM cohort") == [("failed", "evaluation_timeout")]
        body = (await service.verify("g", 0)).json()
        assert (body["mask_sample"], body["reward"], body["failure_kind"]) == (True, 0.0, "judge_failed")


@pytest.mark.rule("R31", "L4")
async def test_a_verdict_after_the_deadline_fails_the_cohort_itself_and_is_not_stored(database_url: str) -> None:
    async with running(database_url, settings=SHORT) as service:
        waiting = await judged_by_hand(service)
        *in_time, late = await verdicts(service)
        assert all([isinstance(await service.service.scribe.put(verdict), Kept) for verdict in in_time])
        await service.pass_time(51)
        assert isinstance(await service.service.scribe.put(late), Lost)
        assert {(await task).json()["failure_kind"] for task in waiting} == {"judge_failed"}
        assert await service.rows("SELECT failure_kind FROM cohort") == [("evaluation_timeout",)]
        assert await service.rows("SELECT count(*) FROM comparison WHERE status = 'done'") == [(7,)]
        assert await service.rows("SELECT count(*) FROM member WHERE reward IS NOT NULL") == [(0,)]


@pytest.mark.rule("L4", "L3")
async def test_verdicts_recorded_in_time_are_settled_however_late(database_url: str) -> None:
    async with running(database_url, settings=SHORT) as service:
        waiting = await judged_by_hand(service)
        for verdict in await verdicts(service, last=False):
            assert isinstance(await service.service.scribe.put(verdict), Kept)
        await service.pass_time(1000)
        held, status = await only_cohort(service)
        assert status == "judging"
        await service.service.scribe.put(Expire((held.cohort_id,)))
        assert [(await task).json()["reward"] for task in waiting] == expected_group("g")
        assert (await only_cohort(service))[1] == "completed"


@pytest.mark.rule("L1", "L4")
@pytest.mark.parametrize("expiry_first", [True, False])
async def test_a_last_verdict_and_the_expiry_in_one_commit_give_one_disposition(
    database_url: str, expiry_first: bool
) -> None:
    async with running(database_url, settings=SHORT) as service:
        waiting = await judged_by_hand(service)
        *others, last = await verdicts(service)
        for verdict in others:
            await service.service.scribe.put(verdict)
        await service.pass_time(51)
        commands: list[Any] = [Expire((last.held.cohort_id,)), last]
        answers = [service.service.scribe.put(command) for command in commands[:: 1 if expiry_first else -1]]
        await asyncio.gather(*answers)
        outcomes = {(await task).json()["mask_sample"] for task in waiting}
        assert outcomes == {True}
        assert await service.rows("SELECT status, failure_kind FROM cohort") == [("failed", "evaluation_timeout")]


@pytest.mark.rule("R15", "L1", "L3")
@pytest.mark.parametrize("order", ["newer, then verdict", "verdict, then newer", "together"])
async def test_supersession_and_settlement_leave_one_disposition(database_url: str, order: str) -> None:
    async with running(database_url, settings=SHORT) as service:
        waiting = await judged_by_hand(service)
        *others, last = await verdicts(service)
        for verdict in others:
            await service.service.scribe.put(verdict)
        scribe = service.service.scribe
        if order == "newer, then verdict":
            newer = service.later("g", 0, attempt=1)
            await service.until(lambda rows: rows[0][0] == 2, "SELECT count(*) FROM cohort")
            assert isinstance(await scribe.put(last), Lost)
        elif order == "verdict, then newer":
            assert isinstance(await scribe.put(last), Kept)
            newer = service.later("g", 0, attempt=1)
        else:
            newer = service.later("g", 0, attempt=1)
            await happens(lambda: scribe.queued)
            await scribe.put(last)
        replies = [await task for task in waiting]
        [(status, kind)] = await service.rows("SELECT status, failure_kind FROM cohort WHERE attempt = 0")
        rewards = await service.rows("SELECT reward FROM member WHERE attempt = 0 ORDER BY rollout_index")
        if status == "completed":
            assert order != "newer, then verdict"
            assert [reply.json()["reward"] for reply in replies] == expected_group("g") == [row[0] for row in rewards]
        else:
            assert order != "verdict, then newer"
            assert (status, kind) == ("failed", "superseded")
            assert {problem(reply) for reply in replies} == {(503, "superseded")}
            assert {row[0] for row in rewards} == {None}
        newer.cancel()
        await asyncio.gather(newer, return_exceptions=True)


@pytest.mark.rule("R48", "L5", "R15")
async def test_a_judge_that_answers_after_the_cohort_lost_its_right_is_not_heard(database_url: str) -> None:
    async with running(database_url, settings=SHORT) as service:
        waiting = await judged_by_hand(service)
        asked = len(service.judge.requests)
        newer = service.later("g", 0, attempt=1)
        assert {problem(await task) for task in waiting} == {(503, "superseded")}
        service.judge.gate.set()
        await happens(lambda: not service.judge.waiting and not service.service.judging.held)
        assert asked == len(service.judge.requests) == 8
        assert await service.rows("SELECT count(*) FROM comparison WHERE status = 'done'") == [(0,)]
        assert await service.rows("SELECT count(*) FROM judge_call") == [(0,)]
        newer.cancel()
        await asyncio.gather(newer, return_exceptions=True)


@pytest.mark.rule("R23", "R33")
async def test_every_member_is_told_the_same_of_a_failure_for_ever(database_url: str) -> None:
    async with running(database_url, settings=SHORT) as service:
        waiting = [service.later("g", slot) for slot in range(3)]
        await service.stored(3)
        await service.pass_time(101)
        told = [(await task).json() for task in waiting]
        for _ in range(2):
            assert [(await service.verify("g", slot)).json() for slot in range(3)] == told

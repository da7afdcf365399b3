"""When the next try is made: pauses, floors, deadlines, and budgets that outlive a restart (R45, R47)."""

from __future__ import annotations

import asyncio
import email.utils
import random

import pytest
import structlog

from cohortd.judges.caller import DeadlinePassed, JudgeFailure, TriesSpent
from cohortd.judges.pacing import BACKOFF_MOST_S, backoff_s, retry_after_s
from tests.judges.support import Comparison, judge, kind, profile
from tests.support.fake_clock import FakeClock
from tests.support.judge_server import (
    JudgeServer,
    cut,
    exhausted,
    hang,
    refusing_url,
    reset,
    says,
    status,
    verdict,
)

NOW = 1_800_000_000.0


@pytest.mark.rule("R45")
@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("0", 0.0),
        ("7", 7.0),
        (" 2.5 ", 2.5),
        (email.utils.formatdate(NOW + 90, usegmt=True), 90.0),
        (email.utils.formatdate(NOW - 90, usegmt=True), 0.0),
        ("soon", None),
        ("-5", None),
        ("nan", None),
        ("inf", None),
        ("1" * 400, None),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(header: str | None, seconds: float | None) -> None:
    assert retry_after_s(header, NOW) == seconds


@pytest.mark.rule("R45")
def test_backoff_doubles_under_a_ceiling_with_full_jitter() -> None:
    rng = random.Random(3)
    for failures, ceiling in ((1, 0.5), (2, 1.0), (3, 2.0), (6, 16.0), (7, 30.0), (8, 30.0), (5000, BACKOFF_MOST_S)):
        drawn = [backoff_s(failures, rng) for _ in range(400)]
        assert 0 <= min(drawn) < ceiling * 0.1
        assert ceiling * 0.9 < max(drawn) <= ceiling


@pytest.mark.rule("R45")
async def test_answers_are_tried_again_after_the_parse_pause() -> None:
    clock = FakeClock(autopilot=True)
    async with JudgeServer(says("no"), says(""), verdict()) as server:
        await Comparison(judge([server.url], clock), clock, profile(genrm_parse_retry_sleep_s=0.7)).run()
    assert clock.slept == [0.7, 0.7]


@pytest.mark.rule("R45")
@pytest.mark.parametrize("number", [408, 429, 503])
@pytest.mark.parametrize("as_date", [False, True])
async def test_retry_after_is_a_floor(number: int, as_date: bool) -> None:
    clock = FakeClock(autopilot=True)
    began = clock.monotonic()
    header = email.utils.formatdate(clock.now() + 77, usegmt=True) if as_date else "77"
    async with JudgeServer(status(number, retry_after=header), verdict()) as server:
        comparison = Comparison(judge([server.url], clock), clock, profile())
        assert kind(await comparison.run()) == "verdict"
    assert clock.monotonic() - began >= 77


@pytest.mark.rule("R45")
@pytest.mark.parametrize("header", ["100", "1000000000"])
async def test_no_pause_passes_the_evaluation_deadline(header: str) -> None:
    clock = FakeClock(autopilot=True)
    began = clock.monotonic()
    async with JudgeServer(status(429, retry_after=header)) as server:
        comparison = Comparison(judge([server.url], clock), clock, profile(), left_s=60)
        run = asyncio.create_task(comparison.run())
        clock.autopilot = False
        await server.calls_arrive(1)
        await comparison.recorded.wait()
        await clock.advance(59.9)
        assert not run.done()
        await clock.advance(0.1)
        with pytest.raises(DeadlinePassed):
            await run
    assert clock.monotonic() - began == pytest.approx(60)
    assert comparison.ends == []
    assert comparison.endpoints.outstanding == comparison.endpoints.waiting == 0


@pytest.mark.rule("R45", "R46")
async def test_a_pause_that_would_pass_the_deadline_ends_at_it() -> None:
    clock = FakeClock(autopilot=True)
    began = clock.monotonic()
    async with JudgeServer(says("no")) as server:
        comparison = Comparison(judge([server.url], clock), clock, profile(genrm_parse_retry_sleep_s=1000.0), left_s=60)
        with pytest.raises(DeadlinePassed):
            await comparison.run()
    assert clock.monotonic() == began + 60
    assert comparison.ends == []


@pytest.mark.rule("R31", "R46")
@pytest.mark.parametrize("spent", [TriesSpent(), TriesSpent(transport=8, total=9, answers=1, answered=True)])
async def test_a_call_that_the_deadline_cuts_off_is_no_failed_try(spent: TriesSpent) -> None:
    clock = FakeClock()
    async with JudgeServer(hang) as server:
        comparison = Comparison(judge([server.url], clock), clock, profile(), left_s=0.3, spent=spent)
        run = asyncio.create_task(comparison.run())
        await server.calls_arrive(1)
        await clock.advance(0.2)  # the real timer rings while the clock still shows a moment left
        with pytest.raises(DeadlinePassed):
            await run
    assert comparison.tries == []
    assert comparison.endpoints.outstanding == 0


@pytest.mark.rule("R31")
async def test_a_deadline_that_is_over_makes_no_call() -> None:
    clock = FakeClock()
    async with JudgeServer() as server:
        comparison = Comparison(judge([server.url], clock), clock, profile(), left_s=0.0)
        with pytest.raises(DeadlinePassed):
            await comparison.run()
        assert server.calls == []


@pytest.mark.rule("R45")
async def test_budgets_go_on_where_a_restart_left_them() -> None:
    clock = FakeClock(autopilot=True)
    async with JudgeServer(says("")) as server:
        comparison = Comparison(
            judge([server.url], clock), clock, profile(), spent=TriesSpent(answers=2, transport=5, total=7)
        )
        assert kind(await comparison.run()) == "failure"
    assert [note.try_no for note in comparison.tries] == [8, 9]

    async with JudgeServer(status(500)) as server:
        endpoints = judge([server.url], clock, eject_after=100)
        comparison = Comparison(endpoints, clock, profile(), spent=TriesSpent(answers=2, transport=7, total=9))
        ended = await comparison.run()
    assert [note.try_no for note in comparison.tries] == [10, 11]
    assert isinstance(ended, JudgeFailure)


@pytest.mark.rule("R46")
async def test_an_answer_before_the_restart_counts_for_the_default_verdict() -> None:
    clock = FakeClock(autopilot=True)
    async with JudgeServer(says("")) as server:
        spent = TriesSpent(answers=3, answered=True, total=3)
        assert kind(await Comparison(judge([server.url], clock), clock, profile(), spent=spent).run()) == "default"


@pytest.mark.rule("R41", "R45")
@pytest.mark.parametrize("while_pausing", [False, True])
async def test_an_interrupted_try_leaves_no_record_and_no_slot(while_pausing: bool) -> None:
    clock = FakeClock()
    async with JudgeServer(status(503) if while_pausing else hang) as server:
        comparison = Comparison(judge([server.url], clock), clock, profile())
        run = asyncio.create_task(comparison.run())
        await server.calls_arrive(1)
        if while_pausing:
            await clock.asleep.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await server.clients_leave()  # the call is aborted, not left to run
    assert len(comparison.tries) == int(while_pausing)
    assert comparison.endpoints.outstanding == 0
    assert not comparison.endpoints.active_cohorts


@pytest.mark.rule("R45")
async def test_a_slot_is_free_while_its_pair_pauses() -> None:
    clock = FakeClock()
    async with JudgeServer(status(503, retry_after="0"), verdict()) as server:
        endpoints = judge([server.url], clock, concurrency=1)
        pausing = Comparison(endpoints, clock, profile())
        run = asyncio.create_task(pausing.run())
        await clock.asleep.wait()
        other = Comparison(endpoints, clock, profile(), cohort_id="other")
        assert kind(await other.run()) == "verdict"
        await clock.advance(1)
        assert kind(await run) == "verdict"


@pytest.mark.rule("R45")
async def test_transport_retries_can_be_switched_off() -> None:
    clock = FakeClock(autopilot=True)
    async with JudgeServer(cut, reset) as server:
        comparison = Comparison(judge([server.url], clock), clock, profile(judge_transport_retries=0))
        assert kind(await comparison.run()) == "failure"
        assert len(server.calls) == 1


@pytest.mark.rule("R47")
@pytest.mark.parametrize(
    ("fates", "spent", "words"),
    [
        ([exhausted()], TriesSpent(), "4 of 4 tries exhausted max_output_tokens=16384 without a verdict"),
        ([exhausted(), says(""), exhausted(), says("")], TriesSpent(), "2 of 4 tries exhausted"),
        ([says("")], TriesSpent(answers=3, exhausted=2, total=3), "2 of 4 tries exhausted"),
        ([says("")], TriesSpent(), "no completed answer after 4 tries"),
        ([status(500)], TriesSpent(), "HTTP 500, type server_error: no completed answer after 9 tries"),
    ],
)
async def test_a_failure_says_how_many_tries_ran_out_of_tokens(
    fates: list[object], spent: TriesSpent, words: str
) -> None:
    clock = FakeClock(autopilot=True)
    async with JudgeServer(*fates) as server:  # type: ignore[arg-type]
        comparison = Comparison(judge([server.url], clock, eject_after=100), clock, profile(), spent=spent)
        ended = await comparison.run()
    assert isinstance(ended, JudgeFailure)
    assert words in ended.reason
    assert ("constrain the judge's reasoning" in ended.reason) == ("exhausted" in words)


@pytest.mark.rule("R47")
async def test_every_exhausted_try_is_logged_with_pair_try_and_limit() -> None:
    clock = FakeClock(autopilot=True)
    with structlog.testing.capture_logs() as lines:
        async with JudgeServer(exhausted("ANSWERTEXT")) as server:
            await Comparison(judge([server.url], clock), clock, profile()).run()
    found = [line for line in lines if line["event"] == "judge_budget_exhausted"]
    assert [(line["pair"], line["answer_try"], line["of"], line["max_output_tokens"]) for line in found] == [
        ("(0, 1)", number, 4, 16384) for number in (1, 2, 3, 4)
    ]
    for secret in ("ANSWERTEXT", "ANSWERZERO", "GULLSECRET", "KEYSECRET"):
        assert secret not in str(lines)


@pytest.mark.rule("R45")
async def test_a_refused_connection_pauses_like_any_fault() -> None:
    clock = FakeClock(autopilot=True)
    with refusing_url() as url:
        await Comparison(judge([url], clock, eject_after=100), clock, profile()).run()
    assert len(clock.slept) == 8
    assert all(0 <= pause <= ceiling for pause, ceiling in zip(clock.slept, (0.5, 1, 2, 4, 8, 16, 30, 30), strict=True))

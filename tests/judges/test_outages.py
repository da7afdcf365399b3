"""Several endpoints, some of them sick: what an outage costs, and what it must not (R45, R49)."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from cohortd.judges.caller import DeadlinePassed, JudgeFailure
from cohortd.judges.endpoints import JudgeEndpoints
from cohortd.judges.http import Reply, TransportFault
from tests.judges.support import Comparison, judge, kind, profile
from tests.support.fake_clock import FakeClock, settle
from tests.support.judge_server import VERDICT, JudgeServer, says, status, verdict

THREE = ("http://a.test/v1", "http://b.test/v1", "http://c.test/v1")
QUOTA = (b"insufficient_quota", b"credit_balance_exhausted", b"billing_hard_limit_reached")
PAIRS = [(0, 1), (1, 2), (2, 0)]
GOOD = msgspec.json.encode({"output": [{"type": "message", "content": [{"type": "output_text", "text": VERDICT}]}]})
Script = Callable[[str], Reply | TransportFault]


class Transport:
    """Judges in memory that take a moment of the test's time and answer as the script says for their host."""

    def __init__(self, clock: FakeClock, script: Script, takes_s: float = 0.05) -> None:
        self._clock = clock
        self._takes_s = takes_s
        self.script = script
        self.calls: list[tuple[float, str]] = []

    async def post(self, url: str, body: bytes, **_limits: object) -> Reply:
        """Answer after the moment."""
        host = url.split("/")[2]
        self.calls.append((self._clock.monotonic(), host))
        await self._clock.sleep(self._takes_s)
        said = self.script(host)
        if isinstance(said, TransportFault):
            raise said
        return said

    async def close(self) -> None:
        """Nothing is open."""

    def count(self) -> Counter[str]:
        """Calls by host."""
        return Counter(host for _, host in self.calls)


def ok() -> Reply:
    return Reply(200, None, GOOD)


def refused() -> TransportFault:
    return TransportFault("connect", "Refused")


def error(number: int, retry_after: str | None = None) -> Reply:
    return Reply(number, retry_after, b"{}")


def start(
    endpoints: JudgeEndpoints, clock: FakeClock, transport: Transport, cohorts: int, **fields: Any
) -> tuple[list[Comparison], list[asyncio.Task[object]]]:
    """Begin to judge so many cohorts of three."""
    comparisons = [
        Comparison(endpoints, clock, profile(**fields), f"cohort {number}", pair, transport=transport, left_s=1800)
        for number in range(cohorts)
        for pair in PAIRS
    ]
    return comparisons, [asyncio.create_task(comparison.run()) for comparison in comparisons]


@pytest.mark.rule("R49")
@pytest.mark.parametrize("said", [refused(), error(500), TransportFault("timeout", "TimeoutError"), ok()])
async def test_one_sick_endpoint_of_three_costs_no_verdict(said: Reply | TransportFault) -> None:
    clock = FakeClock()
    transport = Transport(clock, lambda host: said if host == "a.test" else ok())
    endpoints = judge(THREE, clock, concurrency=4)
    comparisons, tasks = start(endpoints, clock, transport, 40)
    await clock.advance(120)
    assert [kind(task.result()) for task in tasks] == ["verdict"] * 120  # type: ignore[arg-type]
    spent = sum(note.budget == "transport" for comparison in comparisons for note in comparison.tries)
    assert spent <= 4  # the failures before the third in a row, and what was under way
    assert endpoints.outstanding == 0


@pytest.mark.rule("R49")
async def test_a_pair_tries_elsewhere_after_a_failure_even_where_more_is_going_on() -> None:
    clock = FakeClock()
    transport = Transport(clock, lambda host: error(500) if host == "a.test" else ok())
    endpoints = judge(THREE[:2], clock)
    taken = [await endpoints.acquire(None) for _ in range(6)]
    for slot in taken:
        if slot.endpoint is endpoints.endpoints[0]:
            slot.give_back()
    comparison = Comparison(endpoints, clock, profile(), transport=transport)
    task = asyncio.create_task(comparison.run())
    await clock.advance(60)
    assert kind(await task) == "verdict"
    assert comparison.outcomes == ["http_500", "ok"]


@pytest.mark.rule("R49")
@pytest.mark.parametrize("said", [refused(), error(503)])
async def test_a_total_outage_costs_one_probe_per_cool_down_and_no_verdict(said: Reply | TransportFault) -> None:
    clock = FakeClock()
    transport = Transport(clock, lambda host: said)
    endpoints = judge(THREE, clock, concurrency=8)
    comparisons, tasks = start(endpoints, clock, transport, 20)
    await clock.advance(5)
    assert endpoints.down_since() is not None
    known = len(transport.calls)
    await clock.advance(600)
    probes = transport.calls[known:]
    assert len(probes) <= 3 * (600 / 30 + 5)
    for host in transport.count():
        moments = [at for at, asked in probes if asked == host]
        assert all(later - earlier >= 1 for earlier, later in itertools.pairwise(moments))
    transport.script = lambda host: ok()
    await clock.advance(60)
    assert [kind(task.result()) for task in tasks] == ["verdict"] * 60  # type: ignore[arg-type]
    assert endpoints.down_since() is None
    assert not any(endpoint.row for endpoint in endpoints.endpoints)
    for comparison in comparisons:
        charged = [note for note in comparison.tries if note.budget == "transport"]
        assert len(charged) <= 2


@pytest.mark.rule("R49", "R31")
async def test_an_outage_that_outlasts_the_deadline_ends_at_the_deadline() -> None:
    clock = FakeClock()
    transport = Transport(clock, lambda host: refused())
    endpoints = judge(THREE[:1], clock)
    comparisons, tasks = start(endpoints, clock, transport, 1)
    await clock.advance(1799)
    assert not any(task.done() for task in tasks)
    await clock.advance(2)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, DeadlinePassed) for result in results)
    assert [comparison.ends for comparison in comparisons] == [[], [], []]
    assert endpoints.outstanding == endpoints.waiting == 0
    assert not endpoints.active_cohorts


@pytest.mark.rule("R45", "R49")
async def test_retry_after_at_one_endpoint_slows_it_for_all_cohorts_and_nothing_else() -> None:
    clock = FakeClock()
    asked: list[float] = []

    def script(host: str) -> Reply:
        if host == "a.test" and not asked:
            asked.append(clock.monotonic())
            return error(429, "300")
        return ok()

    transport = Transport(clock, script)
    endpoints = judge(THREE[:2], clock, concurrency=1)
    _, tasks = start(endpoints, clock, transport, 20)
    await clock.advance(30)
    assert [kind(task.result()) for task in tasks] == ["verdict"] * 60  # type: ignore[arg-type]
    assert transport.count()["a.test"] == 1
    _, tasks = start(endpoints, clock, transport, 1)
    await clock.advance(1)
    assert transport.count()["a.test"] == 1
    await clock.advance(300)
    _, tasks = start(endpoints, clock, transport, 2)
    await clock.advance(1)
    assert transport.count()["a.test"] > 1


@pytest.mark.rule("R45")
async def test_a_storm_of_429_does_not_burn_the_tries() -> None:
    clock = FakeClock()
    storm = True
    transport = Transport(clock, lambda host: error(429) if storm else ok())
    endpoints = judge(THREE[:1], clock, concurrency=16)
    _, tasks = start(endpoints, clock, transport, 30)
    await clock.advance(20)
    assert not any(task.done() for task in tasks)
    assert len(transport.calls) < 16 * 9  # the endpoint rests longer and longer
    storm = False
    await clock.advance(120)
    assert [kind(task.result()) for task in tasks] == ["verdict"] * 90  # type: ignore[arg-type]


@pytest.mark.rule("R49")
async def test_server_errors_of_one_cohort_among_several_do_not_eject() -> None:
    clock = FakeClock(autopilot=True)
    async with JudgeServer(status(500)) as server:
        endpoints = judge([server.url], clock)
        with endpoints.working_for("other"):
            comparison = Comparison(endpoints, clock, profile())
            assert kind(await comparison.run()) == "failure"
    assert comparison.budgets == ["transport"] * 9
    assert endpoints.down_since() is None


@pytest.mark.rule("R45")
@pytest.mark.parametrize("policy", ["fail", "park"])
@pytest.mark.parametrize(
    "said",
    [
        *(error(number) for number in (401, 403, 404)),
        *(Reply(429, "1", b'{"error": {"code": "%s"}}' % code) for code in QUOTA),
        *(Reply(429, None, b'{"error": {"type": "%s"}}' % code) for code in QUOTA),
    ],
)
async def test_a_refusing_judge_fails_the_pair_or_parks_the_endpoint(said: Reply, policy: str) -> None:
    clock = FakeClock()
    refusing = True
    transport = Transport(clock, lambda host: said if refusing else ok())
    endpoints = judge(THREE[:1], clock)
    comparisons, tasks = start(endpoints, clock, transport, 1, on_judge_refusal=policy)
    await clock.advance(100)
    if policy == "fail":
        assert all(isinstance(task.result(), JudgeFailure) for task in tasks)
        assert endpoints.down_since() is None
        return
    assert not any(task.done() for task in tasks)
    assert endpoints.down_since() is not None
    assert len(transport.calls) <= 3 + 7
    refusing = False
    await clock.advance(60)
    assert [kind(task.result()) for task in tasks] == ["verdict"] * 3  # type: ignore[arg-type]
    assert {note.budget for comparison in comparisons for note in comparison.tries} == {"none"}


@pytest.mark.rule("R45", "R49")
async def test_a_refusal_where_it_fails_pairs_shows_that_a_lost_endpoint_is_back() -> None:
    clock = FakeClock()
    transport = Transport(clock, lambda host: refused())
    endpoints = judge(THREE[:1], clock)
    _, tasks = start(endpoints, clock, transport, 1)
    await clock.advance(1)
    assert endpoints.down_since() is not None
    transport.script = lambda host: error(404)
    await clock.advance(60)
    assert all(isinstance(task.result(), JudgeFailure) for task in tasks)
    assert endpoints.down_since() is None


@pytest.mark.rule("R42")
async def test_a_refused_schema_is_left_out_from_then_on_at_that_endpoint() -> None:
    clock = FakeClock(autopilot=True)
    unknown = status(400, error={"message": "response_format json_schema is not supported"})
    async with JudgeServer(unknown, verdict()) as server:
        endpoints = judge([server.url], clock)
        first = Comparison(endpoints, clock, profile("chat_template"))
        assert kind(await first.run()) == "verdict"
        assert (first.outcomes, first.budgets) == (["http_400", "ok"], ["none", "none"])
        second = Comparison(endpoints, clock, profile("chat_template"))
        assert kind(await second.run()) == "verdict"
        assert second.outcomes == ["ok"]
        assert ["response_format" in call.json for call in server.calls] == [True, False, False]


@pytest.mark.rule("R42", "R45")
@pytest.mark.parametrize(
    ("judge_format", "message"), [("chat_template", "context too long"), ("chat_roles", "response_format is unknown")]
)
async def test_any_other_refused_request_fails_at_once(judge_format: str, message: str) -> None:
    clock = FakeClock(autopilot=True)
    async with JudgeServer(status(400, error={"message": message})) as server:
        comparison = Comparison(judge([server.url], clock), clock, profile(judge_format))
        assert kind(await comparison.run()) == "failure"
        assert len(server.calls) == 1


@pytest.mark.rule("R48")
async def test_cancelled_cohorts_give_everything_back() -> None:
    clock = FakeClock()
    transport = Transport(clock, lambda host: error(503) if len(transport.calls) % 2 else ok(), takes_s=5)
    endpoints = judge(THREE, clock, concurrency=2)
    _, tasks = start(endpoints, clock, transport, 10)
    await clock.advance(7)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await settle()
    assert endpoints.outstanding == endpoints.waiting == 0
    assert not endpoints.active_cohorts
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.rule("R45")
async def test_answers_and_transport_have_budgets_of_their_own() -> None:
    clock = FakeClock(autopilot=True)
    fates = [status(500), says("no")] * 3 + [status(503)] * 5 + [verdict()]
    async with JudgeServer(*fates) as server:
        comparison = Comparison(judge([server.url], clock, eject_after=100), clock, profile())
        assert kind(await comparison.run()) == "verdict"
    assert Counter(comparison.budgets) == {"transport": 8, "answers": 3, "none": 1}

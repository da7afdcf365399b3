"""Who is out, and how it comes back (R49); time is moved by hand."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from cohortd.judges.endpoints import Endpoint, Failure, JudgeEndpoints, Slot
from tests.judges.support import judge
from tests.support.fake_clock import FakeClock, settle

THREE = ("http://a:1/v1", "http://b:2/v1", "http://c:3/v1")
CONNECTION = Failure("cohort", (0, 1), connection=True)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def server_error(cohort_id: str = "cohort", members: tuple[int, int] = (0, 1)) -> Failure:
    return Failure(cohort_id, members, connection=False)


async def fail(endpoints: JudgeEndpoints, *failures: Failure) -> list[bool]:
    """Let calls at the first endpoint fail in turn; what each costs the pair (True: nothing)."""
    found = []
    for failure in failures:
        slot = await endpoints.acquire(None)
        found.append(endpoints.failed(slot, failure))
        slot.give_back()
    return found


async def eject(endpoints: JudgeEndpoints) -> Endpoint:
    """Take the only endpoint out."""
    assert await fail(endpoints, CONNECTION, CONNECTION, CONNECTION) == [False, False, True]
    return endpoints.endpoints[0]


def waiter(endpoints: JudgeEndpoints, until: float | None = None) -> asyncio.Task[Slot]:
    return asyncio.create_task(endpoints.acquire(until))


# -- who is out


@pytest.mark.rule("R49")
async def test_connection_failures_in_a_row_eject(clock: FakeClock) -> None:
    endpoints = judge(THREE[:1], clock, eject_after=3)
    await eject(endpoints)
    assert endpoints.down_since() == clock.monotonic()


@pytest.mark.rule("R49")
async def test_an_answer_ends_the_row(clock: FakeClock) -> None:
    endpoints = judge(THREE[:1], clock)
    for _ in range(5):
        assert await fail(endpoints, CONNECTION, CONNECTION) == [False, False]
        slot = await endpoints.acquire(None)
        endpoints.answered(slot)
        slot.give_back()


@pytest.mark.rule("R49")
@pytest.mark.parametrize(
    ("failures", "active", "ejects"),
    [
        ([server_error()] * 8, {"cohort"}, False),
        ([server_error("cohort"), server_error("cohort"), server_error("other")], {"cohort", "other"}, True),
        ([server_error(members=(0, 1)), server_error(members=(2, 3)), server_error(members=(4, 5))], {"cohort"}, True),
        ([server_error(members=(0, 1)), server_error(members=(1, 2)), server_error(members=(2, 0))], {"cohort"}, True),
        ([server_error(members=(0, 1)), server_error(members=(0, 2)), server_error(members=(3, 0))], {"cohort"}, False),
        ([server_error(members=(0, 1)), server_error(members=(1, 0))] * 4, {"cohort"}, False),
        (
            [server_error(members=(0, 1)), server_error(members=(2, 3)), server_error(members=(4, 5))],
            {"cohort", "other"},
            False,
        ),
        ([server_error(members=(0, 1)), server_error(members=(2, 3))] * 4, {"cohort"}, False),
        ([server_error(), CONNECTION, CONNECTION], {"cohort"}, False),
        ([server_error(), CONNECTION, CONNECTION, CONNECTION], {"cohort"}, True),
        ([CONNECTION, CONNECTION, server_error(), CONNECTION], {"cohort"}, False),
    ],
)
async def test_server_errors_eject_only_when_no_single_cohort_or_member_can_be_to_blame(
    failures: list[Failure], active: set[str], ejects: bool, clock: FakeClock
) -> None:
    endpoints = judge(THREE[:1], clock, eject_after=3)
    endpoints.active_cohorts.update(active)
    found = await fail(endpoints, *failures)
    assert found[-1] == ejects
    assert not any(found[:-1])


@pytest.mark.rule("R49")
async def test_the_probe_is_the_next_call_one_at_a_time_with_backoff(clock: FakeClock) -> None:
    endpoints = judge(THREE[:1], clock)
    endpoint = await eject(endpoints)
    pauses = []
    for _ in range(8):
        late = [waiter(endpoints) for _ in range(3)]
        began = clock.monotonic()
        while not any(task.done() for task in late):
            await clock.advance(0.25)
        pauses.append(clock.monotonic() - began)
        probe, *others = sorted(late, key=lambda task: not task.done())
        assert probe.result().probe
        await clock.advance(100)
        assert not any(task.done() for task in others)  # only one at a time
        assert endpoints.failed(probe.result(), CONNECTION)
        probe.result().give_back()
        for task in others:
            task.cancel()
        await settle()
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    assert endpoint.outstanding == 0


@pytest.mark.rule("R49")
async def test_calls_under_way_at_the_ejection_cost_nothing_and_lengthen_nothing(clock: FakeClock) -> None:
    endpoints = judge(THREE[:1], clock)
    under_way = [await endpoints.acquire(None) for _ in range(40)]
    costs_nothing = [endpoints.failed(slot, CONNECTION) for slot in under_way]
    for slot in under_way:
        slot.give_back()
    assert costs_nothing == [False, False, *[True] * 38]
    late = waiter(endpoints)
    await clock.advance(1.0)
    assert late.done()


@pytest.mark.rule("R49")
async def test_a_probe_that_is_answered_brings_the_endpoint_back_for_all(clock: FakeClock) -> None:
    endpoints = judge(THREE[:1], clock, concurrency=2)
    await eject(endpoints)
    late = [waiter(endpoints) for _ in range(4)]
    await clock.advance(1.0)
    probe = late[0].result()
    endpoints.answered(probe)
    await settle()
    assert [task.done() for task in late] == [True, True, False, False]
    assert endpoints.down_since() is None
    probe.give_back()
    await settle()
    assert late[2].done()
    late[3].cancel()


@pytest.mark.rule("R49")
async def test_an_abandoned_probe_leaves_the_next_call_to_probe(clock: FakeClock) -> None:
    endpoints = judge(THREE[:1], clock)
    await eject(endpoints)
    await clock.advance(1.0)
    (await endpoints.acquire(None)).give_back()  # cancelled: it proved nothing
    assert (await endpoints.acquire(None)).probe


@pytest.mark.rule("R45")
async def test_a_refusal_takes_the_endpoint_out_until_it_accepts(clock: FakeClock) -> None:
    endpoints = judge(THREE[:1], clock)
    under_way = [await endpoints.acquire(None) for _ in range(10)]
    for slot in under_way:
        endpoints.refused(slot)
        slot.give_back()
    assert endpoints.endpoints[0].out_for == "refusal"
    late = waiter(endpoints)
    await clock.advance(1.0)
    endpoints.refused(late.result())
    late.result().give_back()
    late = waiter(endpoints)
    await clock.advance(1.9)
    assert not late.done()
    await clock.advance(0.1)
    assert late.done()


@pytest.mark.rule("R49")
async def test_down_is_said_with_its_beginning_once_no_endpoint_is_left(clock: FakeClock) -> None:
    endpoints = judge(THREE[:2], clock)
    with structlog.testing.capture_logs() as lines:
        await fail(endpoints, *[CONNECTION] * 5)
        assert endpoints.down_since() is None
        await clock.advance(0.5)
        slot = await endpoints.acquire(None)
        assert endpoints.failed(slot, CONNECTION)
        slot.give_back()
        await clock.advance(20)
        assert endpoints.down_for_s() == 20
        endpoints.heard(endpoints.endpoints[0])
        assert endpoints.down_for_s() is None
    events = [line["event"] for line in lines]
    assert events == ["judge_endpoint_out", "judge_endpoint_out", "judge_down", "judge_endpoint_back", "judge_up"]
    assert lines[-1]["down_s"] == 20
    assert all("next" in line for line in lines[:3])


@pytest.mark.rule("R49", "L2")
@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://user:SECRET@judge.example:8443/v1/SECRET?key=SECRET", "judge#0 (judge.example:8443)"),
        ("http://judge.example/v1", "judge#0 (judge.example)"),
        ("http://[::1]:8000/v1", "judge#0 ([::1]:8000)"),
    ],
)
def test_an_endpoint_s_name_holds_neither_credentials_nor_path(url: str, name: str, clock: FakeClock) -> None:
    endpoints = judge([url], clock)
    assert endpoints.endpoints[0].name == name
    assert "KEYSECRET" not in repr(endpoints.config)


@pytest.mark.rule("R49")
async def test_no_task_is_left_when_nobody_waits(clock: FakeClock) -> None:
    endpoints = judge(THREE[:1], clock)
    await eject(endpoints)
    late = waiter(endpoints)
    await settle()
    late.cancel()
    await settle()
    assert asyncio.all_tasks() == {asyncio.current_task()}

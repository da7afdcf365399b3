"""Who is asked next, how many at once, who rests and who is out (R49); time is moved by hand."""

from __future__ import annotations

import asyncio

import pytest

from cohortd.judges.endpoints import Failure, JudgeEndpoints, Slot
from tests.judges.support import judge
from tests.support.fake_clock import FakeClock, settle

THREE = ("http://a:1/v1", "http://b:2/v1", "http://c:3/v1")
CONNECTION = Failure("cohort", (0, 1), connection=True)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def waiter(endpoints: JudgeEndpoints, until: float | None = None) -> asyncio.Task[Slot]:
    return asyncio.create_task(endpoints.acquire(until))


# -- who is asked


@pytest.mark.rule("R49")
async def test_the_least_busy_endpoint_is_asked_and_equals_take_turns(clock: FakeClock) -> None:
    endpoints = judge(THREE, clock)
    slots = [await endpoints.acquire(None) for _ in range(7)]
    assert [endpoint.outstanding for endpoint in endpoints.endpoints] == [3, 2, 2]
    for slot in slots:
        if slot.endpoint is endpoints.endpoints[1]:
            slot.give_back()
    assert (await endpoints.acquire(None)).endpoint is endpoints.endpoints[1]
    lopsided = judge(THREE[:2], clock)
    slots = [await lopsided.acquire(None) for _ in range(4)]
    slots[1].give_back()
    slots[3].give_back()
    assert [(await lopsided.acquire(None)).endpoint for _ in range(2)] == [lopsided.endpoints[1]] * 2
    one_by_one = judge(THREE, clock)
    asked = []
    for _ in range(6):
        slot = await one_by_one.acquire(None)
        asked.append(one_by_one.endpoints.index(slot.endpoint))
        slot.give_back()
    assert asked == [0, 1, 2, 0, 1, 2]


@pytest.mark.rule("R49")
async def test_a_pair_avoids_the_endpoint_where_it_failed_while_there_is_another(clock: FakeClock) -> None:
    endpoints = judge(THREE[:2], clock, concurrency=1)
    first = endpoints.endpoints[0]
    slot = await endpoints.acquire(None, avoid=first)
    assert slot.endpoint is not first
    assert (await endpoints.acquire(None, avoid=first)).endpoint is first


@pytest.mark.rule("R49")
async def test_no_endpoint_gets_more_calls_than_its_limit(clock: FakeClock) -> None:
    endpoints = judge(THREE[:2], clock, concurrency=2)
    assert endpoints.capacity == 4
    slots = [await endpoints.acquire(None) for _ in range(4)]
    late = waiter(endpoints)
    await settle()
    assert not late.done()
    slots[2].give_back()
    slots[2].give_back()  # giving back twice gives one
    assert (await late).endpoint is slots[2].endpoint
    assert endpoints.outstanding == 4


@pytest.mark.rule("R49")
async def test_slots_come_in_the_order_of_asking_and_nobody_jumps_the_queue(clock: FakeClock) -> None:
    endpoints = judge(THREE[:1], clock, concurrency=1)
    slot = await endpoints.acquire(None)
    order: list[int] = []

    async def take(number: int) -> None:
        mine = await endpoints.acquire(None)
        order.append(number)
        mine.give_back()

    tasks = [asyncio.create_task(take(number)) for number in range(5)]
    await settle()
    slot.give_back()
    jumper = asyncio.create_task(take(99))
    await asyncio.gather(*tasks, jumper)
    assert order == [0, 1, 2, 3, 4, 99]


@pytest.mark.rule("R49")
async def test_who_comes_as_a_rest_ends_goes_behind_those_who_waited_for_it(clock: FakeClock) -> None:
    endpoints = judge(THREE[:1], clock, concurrency=1)
    slot = await endpoints.acquire(None)
    endpoints.rest(slot, 30.0)
    slot.give_back()

    async def come() -> Slot:
        await clock.sleep(30.0)
        return await endpoints.acquire(None)

    newcomer = asyncio.create_task(come())
    await settle()
    early = waiter(endpoints)
    await clock.advance(30.0)
    assert (early.done(), newcomer.done()) == (True, False)
    early.result().give_back()
    (await newcomer).give_back()


@pytest.mark.rule("R49")
async def test_a_slot_whose_taker_is_gone_passes_on(clock: FakeClock) -> None:
    endpoints = judge(THREE[:1], clock, concurrency=1)
    slot = await endpoints.acquire(None)
    gone, late, timed = waiter(endpoints), waiter(endpoints), waiter(endpoints, clock.monotonic() + 5)
    await settle()
    slot.give_back()  # given to `gone`, which is cancelled before it runs
    gone.cancel()
    got = await late
    await clock.advance(5)
    with pytest.raises(TimeoutError):
        await timed
    got.give_back()
    assert endpoints.outstanding == endpoints.waiting == 0


@pytest.mark.rule("R49")
async def test_a_thousand_waiters_coming_and_going_lose_no_slot(clock: FakeClock) -> None:
    endpoints = judge(THREE, clock, concurrency=4)
    done = 0

    async def work(number: int) -> None:
        nonlocal done
        slot = await endpoints.acquire(clock.monotonic() + 1000)
        try:
            for _ in range(number % 5):
                await asyncio.sleep(0)
            done += 1
        finally:
            slot.give_back()

    tasks = [asyncio.create_task(work(number)) for number in range(1000)]
    for number, task in enumerate(tasks):
        if number % 7 == 0:
            await asyncio.sleep(0)
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert done > 800
    assert endpoints.outstanding == endpoints.waiting == 0


@pytest.mark.rule("R31", "R49")
async def test_waiting_for_a_slot_ends_at_the_deadline(clock: FakeClock) -> None:
    endpoints = judge(THREE[:1], clock, concurrency=1)
    slot = await endpoints.acquire(None)
    late = waiter(endpoints, clock.monotonic() + 10)
    await clock.advance(9.9)
    assert not late.done()
    await clock.advance(0.1)
    with pytest.raises(TimeoutError):
        await late
    slot.give_back()
    with pytest.raises(TimeoutError):
        await endpoints.acquire(clock.monotonic())
    assert endpoints.outstanding == 0


# -- who rests


@pytest.mark.rule("R45", "R49")
async def test_a_rest_holds_for_every_cohort_and_for_that_endpoint_alone(clock: FakeClock) -> None:
    endpoints = judge(THREE[:2], clock)
    slot = await endpoints.acquire(None)
    endpoints.rest(slot, 30.0)
    slot.give_back()
    others = [await endpoints.acquire(None) for _ in range(5)]
    assert {other.endpoint for other in others} == {endpoints.endpoints[1]}
    await clock.advance(30)
    assert (await endpoints.acquire(None)).endpoint is slot.endpoint


@pytest.mark.rule("R45", "R49")
async def test_who_waits_for_a_rest_is_served_when_it_is_over(clock: FakeClock) -> None:
    endpoints = judge(THREE[:1], clock, concurrency=2)
    slot = await endpoints.acquire(None)
    endpoints.rest(slot, 30.0)
    endpoints.rest(slot, 10.0)  # a shorter one does not shorten it
    slot.give_back()
    late = [waiter(endpoints) for _ in range(3)]
    await clock.advance(29.9)
    assert not any(task.done() for task in late)
    await clock.advance(0.1)
    assert [task.done() for task in late] == [True, True, False]
    late[0].result().give_back()
    (await late[2]).give_back()


@pytest.mark.rule("R49")
async def test_bare_refusals_in_a_row_lengthen_the_rest_and_those_under_way_do_not(clock: FakeClock) -> None:
    endpoints = judge(THREE[:1], clock)
    under_way = [await endpoints.acquire(None) for _ in range(50)]
    await clock.advance(0.01)
    rests = []
    for slot in under_way:
        endpoints.rest(slot, None)
        slot.give_back()
    rests.append(endpoints.endpoints[0].resting_until - clock.monotonic())
    for _ in range(12):
        await clock.advance(rests[-1])
        slot = await endpoints.acquire(None)
        endpoints.rest(slot, None)
        slot.give_back()
        rests.append(endpoints.endpoints[0].resting_until - clock.monotonic())
    assert rests[:4] == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert rests[-1] == pytest.approx(30.0)
    await clock.advance(30.0)
    slot = await endpoints.acquire(None)
    endpoints.answered(slot)
    endpoints.rest(slot, None)
    assert endpoints.endpoints[0].resting_until - clock.monotonic() == pytest.approx(0.1)


@pytest.mark.rule("R45")
async def test_no_header_takes_an_endpoint_away_for_years(clock: FakeClock) -> None:
    endpoints = judge(THREE[:1], clock)
    slot = await endpoints.acquire(None)
    endpoints.rest(slot, 1e9)
    slot.give_back()
    late = waiter(endpoints)
    await clock.advance(3600)
    assert late.done()

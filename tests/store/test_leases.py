"""Leases and fences: one process judges a cohort, and whoever lost it writes nothing (L5, L7)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cohortd.store import claims
from cohortd.store.commands import (
    Claim,
    Expire,
    Kept,
    Lost,
    RecordCall,
    RecordFailure,
    Refresh,
    Release,
    Renew,
    Seen,
    Settle,
)
from tests.store.support import Process, admit, call, frozen, processes, verdict

PAIRS = [(0, 1), (1, 0)]
EVERYTHING = """SELECT status, fence, claimed_by, failure_kind, settled_at, lease_expires_at FROM cohort"""


async def taken_over(process: Process, other: Process) -> Any:
    """A cohort that `process` claimed and lost to `other`; as `process` held it."""
    await process.full("g")
    [claimed] = await process.claim()
    await process.pass_time(process.context.lease_s + 1)
    [again] = await other.claim()
    assert again.held.fence == claimed.held.fence + 1
    return claimed.held


WRITES: dict[str, Any] = {
    "a verdict": lambda held: verdict(held, 0, 1),
    "the last verdict": lambda held: verdict(held, 1, 0, last=True),
    "a call": lambda held: RecordCall(held, call(0, 1, outcome="http_503")),
    "a failure": lambda held: RecordFailure(held, 0, 1, 0, "It failed.", call(0, 1, outcome="http_400")),
    "a settlement": lambda held: Settle(held, frozen().profile),
    "a renewal": lambda held: Renew((held,)),
    "a release": lambda held: Release((held,)),
    "a look": lambda held: Refresh((Seen(held, 0, collecting=True),)),
}


@pytest.mark.rule("L5")
@pytest.mark.parametrize("what", WRITES)
async def test_a_process_that_lost_its_lease_changes_nothing(database_url: str, what: str) -> None:
    async with processes(database_url, 2) as (process, other):
        held = await taken_over(process, other)
        before = await process.rows(EVERYTHING)
        answer = await process.put(WRITES[what](held))
        assert isinstance(answer, Lost) or answer in (None, set(), ({}, {held.cohort_id}))
        assert await process.rows(EVERYTHING) == before
        assert await process.rows("SELECT count(*) FROM comparison WHERE status <> 'planned' OR tries > 0") == [(0,)]
        assert await process.rows("SELECT count(*) FROM judge_call") == [(0,)]


@pytest.mark.rule("L5", "L6")
async def test_the_one_who_took_over_goes_on_from_the_rows(database_url: str) -> None:
    async with processes(database_url, 2) as (process, other):
        await process.full("g")
        [claimed] = await process.claim()
        assert isinstance(await process.put(verdict(claimed.held, 0, 1)), Kept)
        await process.put(Release((claimed.held,)))
        [again] = await other.claim()
        assert [(missing.first, missing.second) for missing in again.missing] == [(1, 0)]
        settled = await other.put(verdict(again.held, 1, 0, last=True))
        assert settled.settled.status == "completed"
        assert isinstance(await process.put(verdict(claimed.held, 1, 0, last=True)), Lost)


@pytest.mark.rule("L5")
async def test_a_fence_that_rises_while_a_verdict_waits_for_the_row_is_seen(database_url: str, engine: str) -> None:
    """Read before the wait, the old fence would let a stale owner's verdict through (TRIAL 5.4)."""
    async with processes(database_url, 1) as (process,):
        await process.full("g")
        [claimed] = await process.claim()
        async with process.database.reading.connect() as plain:
            rescuer = await plain.execution_options(sqlite_write=True)
            await rescuer.exec_driver_sql("UPDATE cohort SET fence = fence + 1, claimed_by = 1")
            late = asyncio.create_task(process.put(verdict(claimed.held, 0, 1)))
            if engine == "postgres":
                await waits_for_a_lock(process)
            await rescuer.commit()
        assert isinstance(await late, Lost)
        assert await process.rows("SELECT count(*) FROM comparison WHERE status = 'done'") == [(0,)]


async def waits_for_a_lock(process: Process) -> None:
    """Return when a session waits for another's row."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    async with asyncio.timeout(10):
        while (await process.rows(query))[0][0] == 0:
            pass


@pytest.mark.rule("L5")
async def test_one_cohort_is_never_handed_to_two_processes(database_url: str) -> None:
    async with processes(database_url, 4) as everybody:
        for number in range(30):
            await everybody[0].full(f"g{number}")
        claimed = await asyncio.gather(*(process.claim(30) for process in everybody))
        ids = [one.held.cohort_id for found in claimed for one in found]
        assert len(ids) == len(set(ids))
        rest = await everybody[0].claim(30)
        assert len(ids) + len(rest) == 30


@pytest.mark.rule("L5")
async def test_a_renewed_lease_holds_and_a_released_one_is_free_at_once(database_url: str) -> None:
    async with processes(database_url, 2) as (process, other):
        await process.full("g")
        [claimed] = await process.claim()
        await process.pass_time(process.context.lease_s - 1)
        assert await process.put(Renew((claimed.held,))) == {claimed.held.cohort_id}
        await process.pass_time(process.context.lease_s - 1)
        assert await other.claim() == []
        await process.put(Release((claimed.held,)))
        assert len(await other.claim()) == 1


async def test_what_is_paused_is_claimed_by_nobody(database_url: str) -> None:
    async with processes(database_url, 1) as (process,):
        process.context.room = 8
        true = "1" if process.database.engine == "sqlite" else "true"
        false = "0" if process.database.engine == "sqlite" else "false"
        await process.write(f"UPDATE service_state SET judging_paused = {true}")
        results = await process.commit(admit("g", 0), admit("g", 1))
        assert results.claimed == []
        assert await process.claim() == []
        await process.write(f"UPDATE service_state SET judging_paused = {false}")
        assert len(await process.claim()) == 1


async def test_a_process_leaves_the_cohorts_of_judges_that_it_does_not_have(database_url: str) -> None:
    async with processes(database_url, 1) as (process,):
        process.context.room = 8
        results = await process.commit(admit("g", 0, judge="another"), admit("g", 1, judge="another"))
        assert results.claimed == []
        assert await process.claim() == []
        process.context.judges = ("judge", "another")
        assert len(await process.claim()) == 1


async def test_no_campaign_starves_another(database_url: str) -> None:
    async with processes(database_url, 1) as (process,):
        for number in range(12):
            await process.full(f"g{number}", campaign="large")
        await process.full("g", campaign="small")
        assert {one.campaign for one in await process.claim(4)} == {"large", "small"}


@pytest.mark.rule("L7")
async def test_claims_that_ran_out_idle_make_a_cohort_lone_and_then_internal(database_url: str) -> None:
    async with processes(database_url, 1) as (process,):
        await process.full("poison")
        for number in range(5):  # two in company, three alone
            in_company = number < 2
            company = await process.commit(Claim(10))
            assert len(company.claimed) == in_company
            assert company.lone_waiting == (not in_company)
            if not in_company:
                await process.full(f"sound-{number}")
                assert [one.group_id for one in await process.claim()] == [f"sound-{number}"]
                [alone] = (await process.commit(Claim(1, alone=True))).claimed
                assert (alone.group_id, alone.alone) == ("poison", True)
            await process.pass_time(process.context.lease_s + 1)
            await process.write("UPDATE cohort SET lease_expires_at = '2999-01-01' WHERE group_id <> 'poison'")
        results = await process.commit(Claim(1, alone=True))
        assert results.claimed == []
        [settlement] = results.settled.values()
        assert (settlement.status, settlement.failure_kind) == ("failed", "internal")
        poison = "SELECT status, failure_kind FROM cohort WHERE group_id = 'poison'"
        assert await process.rows(poison) == [("failed", "internal")]


@pytest.mark.rule("L7")
async def test_a_claim_under_which_a_call_ended_or_that_was_given_back_does_not_count(database_url: str) -> None:
    async with processes(database_url, 1) as (process,):
        await process.full("g")
        for tries in range(1, 9):
            [claimed] = await process.claim()
            assert not claimed.alone
            if tries % 2:
                await process.put(RecordCall(claimed.held, call(0, 1, tries=tries, outcome="http_503")))
                await process.pass_time(process.context.lease_s + 1)
            else:
                await process.put(Release((claimed.held,)))
        assert await process.rows("SELECT idle_claims FROM cohort") == [(0,)]


@pytest.mark.rule("L7", "R36")
@pytest.mark.parametrize("pair", [False, True])
async def test_dying_while_waiting_for_members_does_not_count(database_url: str, pair: bool) -> None:
    async with processes(database_url, 2) as (process, other):
        process.context.room = other.context.room = 8
        early: dict[str, Any] = {"judge_start": "as_pairs_arrive", "size": 8}
        results = await process.commit(admit("g", 0, **early), admit("g", 1 if pair else 2, **early))
        assert [one.collecting for one in results.claimed] == [True]
        await process.writer.close()  # it dies: on Postgres its lock on its token goes with its session
        if process.database.engine == "sqlite":
            await other.writer.execute(claims.VOID_ALL_LEASES)
        assert len(await other.claim()) == (1 if pair else 0)
        again = (await other.commit(admit("g", 3, **early))).claimed
        assert len(again) == (0 if pair else 1)
        assert await other.rows("SELECT idle_claims FROM cohort") == [(1 if pair else 0,)]


@pytest.mark.rule("L3")
async def test_a_settlement_before_the_last_verdict_changes_nothing(database_url: str) -> None:
    async with processes(database_url, 1) as (process,):
        await process.full("g")
        [claimed] = await process.claim()
        await process.put(verdict(claimed.held, 0, 1, last=True))
        await process.put(Settle(claimed.held, frozen().profile))
        assert await process.rows("SELECT status FROM cohort") == [("judging",)]
        assert await process.rows("SELECT count(*) FROM member_reward") == [(0,)]


@pytest.mark.rule("L4", "R31")
async def test_only_the_clock_of_the_database_decides(database_url: str) -> None:
    async with processes(database_url, 1) as (process,):
        cohort_id = await process.full("g", cohort_evaluation_timeout_s=50)
        [claimed] = await process.claim()
        await process.commit(Expire((cohort_id,)))
        assert await process.rows("SELECT status FROM cohort") == [("judging",)]
        await process.pass_time(49)
        assert isinstance(await process.put(verdict(claimed.held, 0, 1)), Kept)
        await process.pass_time(1.5)
        assert isinstance(await process.put(verdict(claimed.held, 1, 0, last=True)), Lost)
        assert await process.rows("SELECT failure_kind FROM cohort") == [("evaluation_timeout",)]

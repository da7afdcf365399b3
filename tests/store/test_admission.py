"""Members of one batch: what a refused one does to the others, and to what was there (R11, R15, R61)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cohortd.cohorts.digest import prompt_fingerprint
from cohortd.cohorts.outcome import Pending
from cohortd.store.commands import Lost, Release, Settle
from tests.store.support import admit, frozen, processes, verdict


@pytest.mark.rule("R11", "R6", "R14")
async def test_a_new_group_is_bound_to_the_member_that_opens_it_not_to_one_that_is_refused(database_url: str) -> None:
    refused = replace(admit("g", 9, attempt=5), fingerprint=prompt_fingerprint("Another prompt", None))
    async with processes(database_url, 1) as (process,):
        answers = (await process.commit(refused, admit("g", 0), admit("g", 1))).answers
        assert answers[0].code == "invalid_coordinates"
        assert all(isinstance(answer, Pending) for answer in answers[1:])
        assert await process.rows("SELECT newest_attempt FROM cohort_group") == [(0,)]


@pytest.mark.rule("R61", "R15")
async def test_a_member_that_finds_no_room_supersedes_nothing(database_url: str) -> None:
    async with processes(database_url, 1) as (process,):
        await process.commit(admit("g", 0))
        process.context.open_room = 0
        [refused] = (await process.commit(admit("g", 0, attempt=1))).answers
        assert refused.code == "overloaded"
        assert await process.rows("SELECT attempt, status FROM cohort") == [(0, "collecting")]
        assert isinstance((await process.put(admit("g", 1))), Pending)


@pytest.mark.rule("L5", "L3")
async def test_a_settlement_under_a_lease_that_was_given_back_changes_nothing(database_url: str) -> None:
    async with processes(database_url, 1) as (process,):
        await process.full("g")
        [claimed] = await process.claim()
        await process.put(verdict(claimed.held, 0, 1))
        await process.put(verdict(claimed.held, 1, 0))  # the last one, which its holder does not know
        await process.put(Release((claimed.held,)))
        assert isinstance(await process.put(Settle(claimed.held, frozen().profile)), Lost)
        assert await process.rows("SELECT status FROM cohort") == [("judging",)]

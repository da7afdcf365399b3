"""What retention drops, what it never does, and what requests are told afterwards (R14, R70)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.support.requests import expected_group
from tests.support.service import MemoryJudge, problem, running, verdict_text

WEEK_S = 7 * 86400


def cohortd(database_url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command on the database."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("COHORTD_")}
    return subprocess.run(
        [sys.executable, "-m", "cohortd", *arguments, "--database-url", database_url],
        capture_output=True, text=True, check=False, env=env,
    )  # fmt: skip


async def counts(service: Any) -> dict[str, int]:
    """Rows of the tables that hold what retention drops."""
    tables = ("member_reward", "member_body", "member_slot", "comparison", "judge_call")
    return {table: (await service.rows(f"SELECT count(*) FROM {table}"))[0][0] for table in tables}


@pytest.mark.rule("R70", "R14")
async def test_dropped_results_leave_identity_and_newest_attempt(database_url: str) -> None:
    async with running(database_url, settings={"cohort_result_ttl_s": WEEK_S}) as service:
        await service.group("g", attempt=3)
        await service.service.retention.round()
        assert (await counts(service))["member_reward"] == 8
        await service.pass_time(WEEK_S + 1)
        assert (await service.service.retention.round()).results == 1
        assert set((await counts(service)).values()) == {0}
        assert await service.rows("SELECT status, attempt FROM cohort") == [("completed", 3)]
        assert problem(await service.verify("g", 0, attempt=3)) == (409, "result_expired")
        assert problem(await service.verify("g", 0, attempt=2)) == (409, "stale_attempt")
        assert problem(await service.verify("g", 0, attempt=4, prompt="another")) == (409, "prompt_mismatch")
        replies = await service.group("g", attempt=4)
        assert [reply.json()["reward"] for reply in replies] == expected_group("g")


@pytest.mark.rule("R70", "R20")
async def test_dropped_payloads_leave_rewards_to_be_replayed_and_no_text_anywhere(database_url: str) -> None:
    settings = {"payload_ttl_s": 60}
    async with running(database_url, settings=settings) as service:
        before = [reply.json() for reply in await service.group("g")]
        await service.pass_time(61)
        assert (await service.service.retention.round()).payloads == 1
        assert (await counts(service))["member_body"] == 0
        for table, columns in {
            "member_slot": ("answer", "reasoning", "metadata"),
            "comparison": ("text",),
            "judge_call": ("text", "reasoning", "message"),
            "cohort_group": ("conversation", "principle"),
        }.items():
            kept = " OR ".join(f"{column} IS NOT NULL" for column in columns)
            assert await service.rows(f"SELECT count(*) FROM {table} WHERE {kept}") == [(0,)]
        assert [reply.json() for reply in await service.group("g")] == before
        assert len(service.judge.requests) == 8
        # The next attempt brings the prompt again, and the judge is given it whole.
        await service.group("g", attempt=1)
        assert service.judge.requests[-1]["input"] == service.judge.requests[0]["input"]


@pytest.mark.rule("R70")
async def test_active_cohorts_are_never_dropped(database_url: str) -> None:
    settings = {"payload_ttl_s": 1, "cohort_result_ttl_s": 1, "max_terminal_cohorts": 0}
    async with running(database_url, settings=settings) as service:
        waiting = [service.later("g", slot) for slot in range(7)]
        await service.stored(7)
        await service.pass_time(1000)
        assert not await service.service.retention.round()
        rewards = [
            (await service.verify("g", 7)).json()["reward"],
            *[(await task).json()["reward"] for task in waiting],
        ]
        assert rewards[1:] + rewards[:1] == expected_group("g")


@pytest.mark.rule("R70")
async def test_the_oldest_go_first_when_there_are_too_many(database_url: str) -> None:
    async with running(database_url, settings={"max_terminal_cohorts": 25}) as service:
        for number in range(30):
            await service.group(f"g{number:02}", 2, _ng_group_size=2)
            await service.pass_time(1)
        assert (await service.service.retention.round()).results == 5
        kept = await service.rows("SELECT min(group_id) FROM cohort WHERE results_dropped_at IS NULL")
        assert kept == [("g05",)]


@pytest.mark.rule("R70")
async def test_prune_works_beside_a_running_server(database_url: str) -> None:
    async with running(database_url) as service:
        await service.group("g")
        nothing = await asyncio.to_thread(cohortd, database_url, "prune", "--cohort-result-ttl-s", "60", "--json")
        assert (nothing.returncode, nothing.stdout.split()) == (0, ["{", '"results":', "0,", '"payloads":', "0", "}"])
        await service.pass_time(61)
        done = await asyncio.to_thread(cohortd, database_url, "prune", "--cohort-result-ttl-s", "60")
        assert done.returncode == 0, done.stderr
        assert done.stdout == "Dropped the results of 1 cohorts and the payloads of 0.\n"
        assert problem(await service.verify("g", 0)) == (409, "result_expired")
        unsaid = await asyncio.to_thread(cohortd, database_url, "prune")
        assert (unsaid.returncode, "--payload-ttl-s" in unsaid.stderr) == (1, True)


@pytest.mark.rule("R24")
async def test_release_lifts_the_fence_of_a_failed_legacy_run_beside_a_running_server(database_url: str) -> None:
    working = False

    def script(first: str, second: str) -> Any:
        return verdict_text(first, second) if working else 400

    async with running(database_url, judge=MemoryJudge(script)) as service:

        async def run() -> list[Any]:
            return [reply.json() for reply in await service.group(None, _ng_task_index=7)]

        assert {body["mask_sample"] for body in await run()} == {True}
        working = True
        assert {body["mask_sample"] for body in await run()} == {True}
        wrong = await asyncio.to_thread(cohortd, database_url, "release", "--task-index", "8")
        assert (wrong.returncode, "nothing was released" in wrong.stderr) == (1, True)
        done = await asyncio.to_thread(cohortd, database_url, "release", "--task-index", "7", "--json")
        assert done.returncode == 0, done.stderr
        assert [body["reward"] for body in await run()] == expected_group(None)
        both = await asyncio.to_thread(cohortd, database_url, "release", "--task-index", "7", "--prompt-id", "x")
        assert both.returncode == 2
        explicit = await asyncio.to_thread(
            cohortd, database_url, "release", "--cohort", str((await service.rows("SELECT id FROM cohort"))[0][0])
        )
        assert explicit.returncode == 1

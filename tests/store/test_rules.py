"""What no client, no second process and no hand-typed SQL may do: each trigger and constraint refuses it (L3, R10)."""

from __future__ import annotations

import pytest
from sqlalchemy import CheckConstraint
from sqlalchemy.exc import DBAPIError

from cohortd.store.commands import Expire
from cohortd.store.rules import RULES
from cohortd.store.tables import metadata
from tests.store.support import Process, admit, processes, verdicts_of

ID = "(SELECT id FROM cohort WHERE group_id = 'done')"
OPEN = "(SELECT id FROM cohort WHERE group_id = 'open')"
NOW = "created_at"

# By trigger: statements that it must refuse, on a database with one completed cohort and one that collects.
FORBIDDEN: dict[str, list[str]] = {
    "cohort_moves_forward": [
        "UPDATE cohort SET status = 'judging' WHERE group_id = 'done'",
        "UPDATE cohort SET status = 'collecting' WHERE group_id = 'done'",
        "UPDATE cohort SET status = 'judging', ready_at = created_at, evaluation_deadline_at = created_at WHERE group_id = 'open'",
    ],
    "cohort_identity_is_frozen": [
        "UPDATE cohort SET size = 3 WHERE group_id = 'open'",
        "UPDATE cohort SET attempt = attempt + 1 WHERE group_id = 'done'",
        "UPDATE cohort SET judge = 'another' WHERE group_id = 'open'",
        "UPDATE cohort SET collection_deadline_at = settled_at WHERE group_id = 'done'",
    ],
    "cohort_settled_is_final": [
        "UPDATE cohort SET settled_at = created_at WHERE group_id = 'done'",
        "UPDATE cohort SET failure_reason = 'rewritten' WHERE group_id = 'done'",
    ],
    "cohort_fence_only_rises": ["UPDATE cohort SET fence = fence - 1 WHERE group_id = 'done'"],
    "cohort_completes_whole": [
        """UPDATE cohort SET status = 'completed', settled_at = created_at WHERE group_id = 'judged'""",
    ],
    "member_joins_collecting_cohort": [
        f"""INSERT INTO member_slot (cohort_id, rollout_index, response_digest, arrived_at)
            SELECT cohort_id, 5, response_digest, arrived_at FROM member_slot WHERE cohort_id = {ID} AND rollout_index = 0""",
        f"""INSERT INTO member_slot (cohort_id, rollout_index, response_digest, arrived_at)
            SELECT {OPEN}, 2, response_digest, arrived_at FROM member_slot WHERE cohort_id = {ID} AND rollout_index = 0""",
    ],
    "member_response_is_final": [
        f"UPDATE member_slot SET answer = 'another' WHERE cohort_id = {OPEN}",
        f"UPDATE member_slot SET answer = NULL, reasoning = NULL WHERE cohort_id = {ID}",
        f"UPDATE member_slot SET rollout_index = 1 WHERE cohort_id = {OPEN}",
    ],
    "member_outlives_all_but_retention": [f"DELETE FROM member_slot WHERE cohort_id = {OPEN}"],
    "body_is_final": ["UPDATE member_body SET codec = 0"],
    "body_outlives_all_but_retention": [f"DELETE FROM member_body WHERE cohort_id = {ID}"],
    "reward_enters_with_settlement": [
        f"""INSERT INTO member_reward (cohort_id, rollout_index, reward, base_reward, adjustment)
            SELECT cohort_id, rollout_index, 5.0, 5.0, 0.0 FROM member_slot WHERE cohort_id = {OPEN}""",
    ],
    "reward_never_changes": ["UPDATE member_reward SET reward = 5.0", "UPDATE member_reward SET reward = reward"],
    "reward_outlives_all_but_retention": ["DELETE FROM member_reward"],
    "comparison_joins_open_cohort": [
        f"""INSERT INTO comparison (cohort_id, position, first, second, judge_index, status)
            VALUES ({ID}, 9, 0, 1, 9, 'planned')""",
    ],
    "comparison_verdict_is_final": [
        f"UPDATE comparison SET score_1 = 5.0 WHERE cohort_id = {ID}",
        f"UPDATE comparison SET status = 'planned' WHERE cohort_id = {ID}",
        f"UPDATE comparison SET first = 7 WHERE cohort_id = {OPEN}",
    ],
    "comparison_outlives_all_but_retention": [f"DELETE FROM comparison WHERE cohort_id = {OPEN}"],
    "profile_never_changes": ["UPDATE judging_profile SET document = '{}'"],
    "group_keeps_its_prompt": [
        "UPDATE cohort_group SET newest_attempt = newest_attempt - 1 WHERE group_id = 'done'",
        "UPDATE cohort_group SET fingerprint = (SELECT fingerprint FROM cohort_group WHERE group_id = 'open')",
    ],
}  # fmt: skip

# By constraint: a statement that it must refuse.
REFUSED: dict[str, str] = {
    "ck_campaign_name": "INSERT INTO campaign SELECT '', created_at FROM campaign",
    "ck_cohort_group_kind": """INSERT INTO cohort_group (campaign, kind, group_id, fingerprint, newest_attempt, created_at)
        SELECT campaign, 'other', group_id, fingerprint, 0, created_at FROM cohort_group WHERE group_id = 'open'""",
    "ck_cohort_group_newest_attempt": """INSERT INTO cohort_group
            (campaign, kind, group_id, fingerprint, newest_attempt, created_at)
        SELECT campaign, kind, 'another', fingerprint, -1, created_at FROM cohort_group WHERE group_id = 'open'""",
    "ck_cohort_group_legacy_parts": "UPDATE cohort_group SET task_index = 1 WHERE group_id = 'open'",
    "ck_cohort_status": """INSERT INTO cohort (id, campaign, kind, group_id, attempt, incarnation, size, status, created_at,
            collection_deadline_at, judge, profile_digest, lease_expires_at)
        SELECT '00000000-0000-7000-8000-000000000000', campaign, kind, group_id, 1, 0, size, 'lost', created_at,
            collection_deadline_at, judge, profile_digest, lease_expires_at FROM cohort WHERE group_id = 'open'""",
    "ck_cohort_failure_kind": """UPDATE cohort SET status = 'failed', failure_kind = 'bad luck', settled_at = created_at
        WHERE group_id = 'open'""",
    "ck_cohort_failed_has_kind": "UPDATE cohort SET status = 'failed', settled_at = created_at WHERE group_id = 'open'",
    "ck_cohort_settled_at": "UPDATE cohort SET settled_at = created_at WHERE group_id = 'open'",
    "ck_cohort_ready_at": "UPDATE cohort SET status = 'ready' WHERE group_id = 'open'",
    "ck_cohort_counters": "UPDATE cohort SET idle_claims = -1 WHERE group_id = 'open'",
    "ck_cohort_dropped_when_settled": "UPDATE cohort SET results_dropped_at = created_at WHERE group_id = 'open'",
    "uq_cohort_live": """INSERT INTO cohort (id, campaign, kind, group_id, attempt, incarnation, size, status, created_at,
            collection_deadline_at, judge, profile_digest, lease_expires_at)
        SELECT '00000000-0000-7000-8000-000000000000', campaign, kind, group_id, attempt, 7, size, 'collecting', created_at,
            collection_deadline_at, judge, profile_digest, lease_expires_at FROM cohort WHERE group_id = 'open'""",
    "uq_cohort_identity": """INSERT INTO cohort (id, campaign, kind, group_id, attempt, incarnation, retired, size, status,
            created_at, collection_deadline_at, judge, profile_digest, lease_expires_at)
        SELECT '00000000-0000-7000-8000-000000000000', campaign, kind, group_id, attempt, incarnation, NOT retired, size,
            'collecting', created_at, collection_deadline_at, judge, profile_digest, lease_expires_at
          FROM cohort WHERE group_id = 'open'""",
    "pk_member_slot": f"""INSERT INTO member_slot (cohort_id, rollout_index, response_digest, arrived_at)
        SELECT cohort_id, rollout_index, response_digest, arrived_at FROM member_slot WHERE cohort_id = {OPEN}""",
    "ck_comparison_score_1": f"UPDATE comparison SET score_1 = 5.5 WHERE cohort_id = {OPEN}",
    "ck_comparison_score_2": f"UPDATE comparison SET score_2 = 0.5 WHERE cohort_id = {OPEN}",
    "ck_comparison_ranking": f"UPDATE comparison SET ranking = 7 WHERE cohort_id = {OPEN}",
    "ck_comparison_done_has_verdict": f"UPDATE comparison SET status = 'done' WHERE cohort_id = {OPEN}",
    "ck_comparison_slots": f"""INSERT INTO comparison (cohort_id, position, first, second, judge_index, status)
        VALUES ({OPEN}, 9, 1, 1, 0, 'planned')""",
    "ck_judge_call_budget": "UPDATE judge_call SET budget = 'free'",
    "ck_judge_call_counters": "UPDATE judge_call SET latency_ms = -1",
    "ck_api_token_scope": "INSERT INTO api_token SELECT 'a', NULL, 'root', response_digest, NULL, arrived_at, NULL FROM member_slot",
    "ck_service_state_single": "INSERT INTO service_state (id) VALUES (2)",
    "fk_member_reward_member_slot": """INSERT INTO member_reward (cohort_id, rollout_index, reward, base_reward, adjustment)
        VALUES ((SELECT id FROM cohort WHERE group_id = 'judged'), 99, 1.0, 1.0, 0.0)""",
    "fk_cohort_cohort_group": "DELETE FROM cohort_group WHERE group_id = 'open'",
}  # fmt: skip


async def history(process: Process) -> None:
    """One cohort that is completed, one that is judged, and one that collects."""
    for group in ("done", "judged"):
        await process.full(group)
    done = next(claimed for claimed in await process.claim() if claimed.group_id == "done")
    await process.commit(*verdicts_of(done.held, [(0, 1), (1, 0)]))
    await process.commit(admit("open", 0))
    assert await process.rows("SELECT group_id, status FROM cohort ORDER BY group_id") == [
        ("done", "completed"),
        ("judged", "judging"),
        ("open", "collecting"),
    ]


async def dump(process: Process) -> list[object]:
    """Every row that a rule protects."""
    tables = ("cohort_group", "cohort", "member_slot", "member_body", "member_reward", "comparison", "judging_profile")
    return [sorted(map(str, await process.rows(f"SELECT * FROM {table}"))) for table in tables]


@pytest.mark.rule("L3", "R10", "R41")
@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
async def test_a_rule_refuses_what_it_must(database_url: str, rule: str) -> None:
    message = next(found.message for found in RULES if found.name == rule)
    async with processes(database_url, 1) as (process,):
        await history(process)
        before = await dump(process)
        for statement in FORBIDDEN[rule]:
            with pytest.raises(DBAPIError) as refused:
                await process.write(statement)
            assert message in str(refused.value.orig), statement
        assert await dump(process) == before


@pytest.mark.rule("L3", "R10")
@pytest.mark.parametrize("constraint", REFUSED)
async def test_a_constraint_refuses_what_it_must(database_url: str, engine: str, constraint: str) -> None:
    async with processes(database_url, 1) as (process,):
        await history(process)
        before = await dump(process)
        with pytest.raises(DBAPIError) as refused:
            await process.write(REFUSED[constraint])
        if engine == "postgres" or constraint.startswith("ck_"):
            assert constraint in str(refused.value.orig)
        assert await dump(process) == before


def test_every_check_of_a_state_or_range_has_a_case() -> None:
    checks = {
        str(constraint.name)
        for table in metadata.sorted_tables
        for constraint in table.constraints
        if isinstance(constraint, CheckConstraint) and not getattr(constraint, "_type_bound", False)
    }
    # Ranges that an earlier refusal (a trigger, a type or a key) keeps anybody from reaching.
    shadowed = {
        "ck_cohort_attempt", "ck_cohort_incarnation", "ck_cohort_size", "ck_cohort_failure_reason",
        "ck_cohort_group_group_id", "ck_member_slot_rollout_index", "ck_member_body_codec", "ck_member_reward_reward",
        "ck_member_reward_base", "ck_member_reward_adjustment", "ck_comparison_status", "ck_comparison_counters",
        "ck_cohort_event_status",
    }  # fmt: skip
    assert checks - set(REFUSED) == shadowed


@pytest.mark.rule("L3")
async def test_a_reward_that_is_no_finite_number_is_never_stored(database_url: str) -> None:
    async with processes(database_url, 1) as (process,):
        await history(process)
        for number in ("9e999", "-9e999") if process.database.engine == "sqlite" else ("'inf'", "'-inf'", "'nan'"):
            with pytest.raises(DBAPIError):
                await process.write(
                    f"""INSERT INTO member_reward (cohort_id, rollout_index, reward, base_reward, adjustment)
                        VALUES ((SELECT id FROM cohort WHERE group_id = 'judged'), 0, {number}, 0, 0)"""
                )


@pytest.mark.rule("R11", "R14", "R2")
async def test_a_refused_member_leaves_nothing_behind(database_url: str) -> None:
    async with processes(database_url, 1) as (process,):
        refused = await process.put(admit("g", 5, campaign="new"))
        assert refused.code == "invalid_coordinates"
        for table in ("campaign", "cohort_group", "cohort", "member_slot", "judging_profile", "cohort_event"):
            assert await process.rows(f"SELECT count(*) FROM {table}") == [(0,)], table


@pytest.mark.rule("L1", "R12")
async def test_a_batch_that_is_run_again_after_an_unknown_commit_changes_nothing(database_url: str) -> None:
    async with processes(database_url, 1) as (process,):
        commands = [admit("g", 0), admit("g", 1), admit("h", 0)]
        first = await process.commit(*commands)
        before = await dump(process)
        again = await process.commit(*commands)
        assert [answer.cohort_id for answer in again.answers] == [answer.cohort_id for answer in first.answers]
        assert await dump(process) == before
        [claimed] = await process.claim()
        verdicts = verdicts_of(claimed.held, [(0, 1), (1, 0)])
        await process.commit(*verdicts)
        before = await dump(process)
        await process.commit(*verdicts, Expire((claimed.held.cohort_id,)))
        assert await dump(process) == before
        assert await process.rows("SELECT count(*) FROM judge_call") == [(2,)]

"""Reads beside the hot path: settlements of waited-for cohorts, overdue cohorts, counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection

from cohortd.cohorts.outcome import MemberReward, Settlement
from cohortd.cohorts.profile import Profile
from cohortd.store.claims import FULL
from cohortd.store.clock import now_sql, seconds_until_sql
from cohortd.store.engine import Database

CHUNK = 400


def _chunks(ids: Sequence[str]) -> Iterable[list[str]]:
    for at in range(0, len(ids), CHUNK):
        yield list(ids[at : at + CHUNK])


async def settlements(database: Database, cohort_ids: Sequence[str]) -> list[Settlement]:
    """Those of the cohorts that are settled, with their rewards, from their rows."""
    found: list[Settlement] = []
    if not cohort_ids:
        return found
    async with database.reader() as connection:
        for chunk in _chunks(cohort_ids):
            found += await _settlements(connection, chunk)
    return found


_SETTLED = text(
    """SELECT id, attempt, size, status, failure_kind, failure_reason, answered_from FROM cohort
        WHERE id IN :ids AND settled_at IS NOT NULL"""
).bindparams(bindparam("ids", expanding=True))
_REWARDS = text(
    """SELECT cohort_id, rollout_index, reward, mask_sample, defaulted_comparisons FROM member_reward
        WHERE cohort_id IN :ids ORDER BY cohort_id, rollout_index"""
).bindparams(bindparam("ids", expanding=True))
_SLOTS = text(
    "SELECT cohort_id, rollout_index FROM member_slot WHERE cohort_id IN :ids ORDER BY cohort_id, rollout_index"
).bindparams(bindparam("ids", expanding=True))


async def _settlements(connection: AsyncConnection, ids: list[str]) -> list[Settlement]:
    heads = (await connection.execute(_SETTLED, {"ids": ids})).all()
    if not heads:
        return []
    sources = {str(head.answered_from or head.id) for head in heads}
    rewards: dict[str, list[MemberReward]] = {}
    for row in (await connection.execute(_REWARDS, {"ids": sorted(sources)})).all():
        member = MemberReward(row.rollout_index, row.reward, bool(row.mask_sample), row.defaulted_comparisons)
        rewards.setdefault(str(row.cohort_id), []).append(member)
    taken: dict[str, set[int]] = {}
    for row in (await connection.execute(_SLOTS, {"ids": [str(head.id) for head in heads]})).all():
        taken.setdefault(str(row.cohort_id), set()).add(row.rollout_index)
    found = []
    for head in heads:
        own = tuple(rewards.get(str(head.answered_from or head.id), ()))
        missing = tuple(slot for slot in range(head.size) if slot not in taken.get(str(head.id), set()))
        found.append(
            Settlement(
                str(head.id), head.attempt, "completed" if own else head.status,
                None if own else head.failure_kind, None if own else head.failure_reason, own, missing,
            )
        )  # fmt: skip
    return found


async def overdue(database: Database, limit: int = 200) -> tuple[str, ...]:
    """Cohorts that collect or are judged although their deadline has passed, at most `limit` of each."""
    now = now_sql(database.engine)
    async with database.reader() as connection:
        collecting = await connection.execute(
            text(
                f"SELECT id FROM cohort WHERE status = 'collecting' AND collection_deadline_at <= (SELECT {now}) LIMIT {limit:d}"
            )
        )
        judging = await connection.execute(
            text(f"SELECT id FROM cohort WHERE {FULL} AND evaluation_deadline_at <= (SELECT {now}) LIMIT {limit:d}")
        )
        return tuple(str(row[0]) for rows in (collecting, judging) for row in rows)


async def waiting_copies(database: Database, limit: int = 200) -> tuple[str, ...]:
    """Legacy cohorts that hold nothing but copies of the completed run before them, quiet for as long as R24 says."""
    quiet_s = seconds_until_sql(database.engine, "(SELECT max(arrived_at) FROM member_slot WHERE cohort_id = c.id)")
    async with database.reader() as connection:
        rows = await connection.execute(text(_COPIES.format(quiet_s=f"-{quiet_s}")))
        due = [
            str(row.id)
            for row in rows
            if row.quiet_s is not None and row.quiet_s >= Profile.from_document(row.document).legacy_copy_wait_s
        ]
    return tuple(due[:limit])


_COPIES = """
SELECT c.id, f.document, {quiet_s} AS quiet_s
  FROM cohort c
  JOIN judging_profile f ON f.digest = c.profile_digest
  JOIN cohort p ON p.campaign = c.campaign AND p.kind = c.kind AND p.group_id = c.group_id AND p.attempt = c.attempt
 WHERE c.status = 'collecting' AND c.kind = 'legacy' AND p.status = 'completed'
   AND p.incarnation = (SELECT max(q.incarnation) FROM cohort q
                         WHERE q.campaign = c.campaign AND q.kind = c.kind AND q.group_id = c.group_id
                           AND q.attempt = c.attempt AND q.status = 'completed')
   AND NOT EXISTS (SELECT 1 FROM member_slot s
                    WHERE s.cohort_id = c.id
                      AND NOT EXISTS (SELECT 1 FROM member_slot o
                                       WHERE o.cohort_id = p.id AND o.rollout_index = s.rollout_index
                                         AND o.response_digest = s.response_digest))"""


@dataclass(frozen=True, slots=True)
class LegacyRuns:
    """Runs without a group id, by one of the things that they can be named by."""

    campaign: str
    task_index: int | None = None
    prompt_id: str | None = None
    cohort_id: str | None = None


async def failed_legacy(database: Database, runs: LegacyRuns) -> list[str]:
    """The failed live cohorts of these legacy runs: the fences that `cohortd release` lifts (R24)."""
    named = {
        "g.task_index = :task_index": runs.task_index,
        "g.prompt_id = :prompt_id": runs.prompt_id,
        "c.id = :cohort_id": runs.cohort_id,
    }
    where = next(condition for condition, value in named.items() if value is not None)
    query = text(
        f"""SELECT c.id FROM cohort c
             JOIN cohort_group g ON g.campaign = c.campaign AND g.kind = c.kind AND g.group_id = c.group_id
            WHERE c.campaign = :campaign AND c.kind = 'legacy' AND c.status = 'failed' AND NOT c.retired AND {where}
            ORDER BY c.id"""
    )
    values = {"campaign": runs.campaign} | {
        condition.rpartition(":")[2]: value for condition, value in named.items() if value is not None
    }
    async with database.reader() as connection:
        return [str(row[0]) for row in (await connection.execute(query, values)).all()]


async def active_cohorts(database: Database) -> int:
    """How many cohorts are not settled."""
    async with database.reader() as connection:
        row = (
            await connection.execute(
                text(
                    f"SELECT (SELECT count(*) FROM cohort WHERE status = 'collecting') + (SELECT count(*) FROM cohort WHERE {FULL})"
                )
            )
        ).one()
        return int(row[0])


async def cohorts_without_judge(database: Database, judges: Sequence[str]) -> dict[str, int]:
    """How many open cohorts wait for each judge that is none of these (R49)."""
    async with database.reader() as connection:
        rows = await connection.execute(text(f"SELECT judge, count(*) FROM cohort WHERE {FULL} GROUP BY judge"))
        return {str(judge): int(count) for judge, count in rows if judge not in judges}


async def revision(database: Database) -> str | None:
    """The schema's revision as the database says it now."""
    async with database.reader() as connection:
        row = (await connection.execute(text("SELECT version_num FROM alembic_version"))).first()
        return None if row is None else str(row[0])

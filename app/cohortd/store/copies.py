"""Legacy copies: a run that a client sent again after a lost reply is answered from the run before it (R24)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cohortd.store import transitions
from cohortd.store.clock import Engine, seconds_until_sql
from cohortd.store.statements import Statement, Step, Transaction, both
from cohortd.store.work import READ_SLOTS, CohortState, GroupState, Work

if TYPE_CHECKING:
    from cohortd.store.batch import Context

LAST_COMPLETED = both(
    "last_completed",
    """SELECT c.id, p.id {using_from} cohort c
         JOIN cohort p ON p.campaign = c.campaign AND p.kind = c.kind AND p.group_id = c.group_id AND p.attempt = c.attempt
                      AND p.status = 'completed'
        WHERE c.id = {k.id} ORDER BY p.incarnation""",
    keys="id",
    types="uuid",
    returns=True,
)


def _quiet(engine: Engine, id_: str) -> str:
    age = seconds_until_sql(engine, "max(s.arrived_at)")
    return f"SELECT s.cohort_id, -{age} FROM member_slot s WHERE s.cohort_id = {id_} GROUP BY s.cohort_id"


QUIET_FOR = Statement("quiet_for", _quiet("sqlite", "?1"), _quiet("postgresql", "ANY($1::uuid[])"), returns=True)


def answer_waiting_copies(work: Work, cohort_ids: tuple[str, ...], context: Context) -> Transaction[None]:
    """Answer those of the cohorts that hold nothing but copies and have had no new member for long enough."""
    waiting = [
        cohort
        for cohort in (work.cohorts[id_] for id_ in cohort_ids if id_ in work.cohorts)
        if cohort.status == "collecting" and cohort.key.kind == "legacy" and not cohort.collection_over
    ]
    if not waiting:
        return
    keys = [(cohort.id,) for cohort in waiting]
    sources = {str(row[0]): str(row[1]) for row in (yield Step(LAST_COMPLETED, keys))}
    quiet = {str(row[0]): row[1] for row in (yield Step(QUIET_FOR, keys))}
    slots: dict[str, dict[int, bytes]] = {}
    wanted = sorted({*sources, *sources.values()})
    if wanted:
        for cohort_id, rollout_index, digest in (yield Step(READ_SLOTS, [(id_,) for id_ in wanted])):
            slots.setdefault(str(cohort_id), {})[rollout_index] = bytes(digest)
    for cohort in waiting:
        wait_s = context.profile(cohort.profile_digest).legacy_copy_wait_s
        source = sources.get(cohort.id)
        own = slots.get(cohort.id, {})
        if source is not None and quiet.get(cohort.id, 0.0) >= wait_s and own and own.items() <= slots[source].items():
            cohort.slots = own
            yield from work.written(cohort)
            yield from _answer(work, cohort, source)


def _answer(work: Work, cohort: CohortState, source: str) -> Transaction[None]:
    group = GroupState(cohort.key, b"", cohort.attempt, cohort.id, fresh=False, used=True, copied_id=source)
    yield from transitions.answer_copies(work, group, cohort)
    transitions.retire(work, cohort)
    if cohort.key in work.groups:
        work.groups[cohort.key].live = None

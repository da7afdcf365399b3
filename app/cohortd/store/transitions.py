"""Changes of state, each one conditional update, an event, and the word to whoever waits (L1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cohortd.cohorts.outcome import MemberReward, Settlement
from cohortd.cohorts.profile import Profile
from cohortd.store import tables as t
from cohortd.store.statements import Literal, Now, Step, Transaction, both, insert
from cohortd.store.work import READ_REWARDS, CohortState, GroupState, Work

if TYPE_CHECKING:
    from cohortd.store.batch import Context

REASON_LIMIT = 2000

# The conditions below never say `status = 'judging'`: it would make Postgres walk the claim index (TRIAL 5.19).
FAIL = both(
    "fail",
    """UPDATE cohort SET status = 'failed', failure_kind = {k.kind}, failure_reason = {k.reason}, settled_at = {now},
              claimed_by = NULL, lease_expires_at = {never} {from}
        WHERE cohort.id = {k.id} AND cohort.settled_at IS NULL""",
    keys="id kind reason",
    types="uuid text text",
)
BEGIN_JUDGING = both(
    "begin_judging",
    "UPDATE cohort SET status = 'judging' {from} WHERE cohort.id = {k.id} AND cohort.settled_at IS NULL",
    keys="id",
    types="uuid",
)
RETIRE = both(
    "retire",
    "UPDATE cohort SET retired = {true} {from} WHERE cohort.id = {k.id}",
    keys="id",
    types="uuid",
)
ANSWER_FROM = both(
    "answer_from",
    "UPDATE cohort SET answered_from = {k.source} {from} WHERE cohort.id = {k.id}",
    keys="id source",
    types="uuid uuid",
)
READY = both(
    "ready",
    """UPDATE cohort SET status = 'ready', ready_at = {now}, evaluation_deadline_at = {now+k.within_s} {from}
        WHERE cohort.id = {k.id} AND cohort.settled_at IS NULL AND cohort.ready_at IS NULL""",
    keys="id within_s",
    types="uuid float8",
)
READ_PAIRS = both(
    "read_pairs",
    """SELECT p.first, p.second, p.judge_index, p.status {using_from} comparison p WHERE p.cohort_id = {k.id}""",
    keys="id",
    types="uuid",
    returns=True,
)
SET_ASIDE = both(
    "set_aside",
    """UPDATE comparison SET status = 'unused' {from}
        WHERE comparison.cohort_id = {k.id} AND comparison.first = {k.a} AND comparison.second = {k.b}
          AND comparison.judge_index = {k.j}""",
    keys="id a b j",
    types="uuid integer integer integer",
)
MOVE_COMPARISON = both(
    "move_comparison",
    """UPDATE comparison SET position = {k.position} {from}
        WHERE comparison.cohort_id = {k.id} AND comparison.first = {k.a} AND comparison.second = {k.b}
          AND comparison.judge_index = {k.j}""",
    keys="id a b j position",
    types="uuid integer integer integer integer",
)
INSERT_COMPARISON = insert(
    "insert_comparison",
    t.comparison,
    {
        "cohort_id": None,
        "position": None,
        "first": None,
        "second": None,
        "judge_index": None,
        "status": Literal("'planned'", "'planned'"),
    },
)
ENTERED = insert(
    "entered",
    t.cohort_event,
    {"cohort_id": None, "fence": None, "status": None, "at": Now(), "detail": None},
    or_ignore=True,
)


def entered(work: Work, cohort: CohortState, detail: str | None) -> None:
    """Remember that the cohort has entered the state that it is in."""
    work.write(ENTERED, (cohort.id, cohort.fence, cohort.status, detail))


def fail(work: Work, cohort: CohortState, kind: str, reason: str) -> None:
    """The cohort fails, unless it is settled; its waiters learn why."""
    if cohort.settled:
        return
    reason = reason if len(reason) <= REASON_LIMIT else reason[: REASON_LIMIT - 1] + "…"
    cohort.status, cohort.failure_kind, cohort.failure_reason = "failed", kind, reason
    work.write(FAIL, (cohort.id, kind, reason))
    entered(work, cohort, f"{kind}: {reason}")
    work.settled[cohort.id] = Settlement(cohort.id, cohort.attempt, "failed", kind, reason, (), cohort.missing())


def supersede(work: Work, cohort: CohortState, newer: int) -> None:
    """A member of a higher attempt was accepted (R15)."""
    fail(work, cohort, "superseded", f"Attempt {cohort.attempt} was replaced by attempt {newer} of the same group.")


def expire_collection(work: Work, cohort: CohortState, context: Context) -> Transaction[None]:
    """The collection deadline has passed: the cohort fails, naming the missing slots (R30), or goes on without (R34)."""
    profile = context.profile(cohort.profile_digest)
    yield from work.written(cohort)
    if profile.on_incomplete == "judge_present" and len(cohort.slots) >= profile.min_members:
        yield from go_on_without_the_missing(work, cohort, profile)
        return
    missing = cohort.missing()
    listed = ", ".join(str(slot) for slot in missing[:64]) + (" ..." if len(missing) > 64 else "")
    fail(
        work,
        cohort,
        "collection_timeout",
        f"{len(missing)} of {cohort.size} members were missing when the collection time of "
        f"{profile.cohort_collection_timeout_s:g} s was over: slots {listed}.",
    )


def go_on_without_the_missing(work: Work, cohort: CohortState, profile: Profile) -> Transaction[None]:
    """Plan anew over those that are there; a verdict counts on for the same ordered pair, others are set aside (R34)."""
    present = sorted(cohort.slots)
    wanted = {
        (present[pair.first], present[pair.second], pair.judge_index): pair.position
        for pair in profile.planned(len(present))
    }
    stored = {tuple(row[:3]) for row in (yield Step(READ_PAIRS, [(cohort.id,)]))}
    for key in sorted(stored - wanted.keys()):
        work.write(SET_ASIDE, (cohort.id, *key))
    for (first, second, judge_index), position in wanted.items():
        if (first, second, judge_index) in stored:
            work.write(MOVE_COMPARISON, (cohort.id, first, second, judge_index, position))
        else:
            work.write(INSERT_COMPARISON, (cohort.id, position, first, second, judge_index))
    ready(work, cohort, profile)
    if cohort.judges_early:
        work.grown.append(cohort)


def expire_evaluation(work: Work, cohort: CohortState, context: Context) -> None:
    """The evaluation deadline has passed before every comparison had its verdict (R31)."""
    profile = context.profile(cohort.profile_digest)
    fail(
        work,
        cohort,
        "evaluation_timeout",
        f"Judging did not end within the evaluation time of {profile.cohort_evaluation_timeout_s:g} s. "
        "Give the judge more capacity, or raise COHORTD_COHORT_EVALUATION_TIMEOUT_S.",
    )


def ready(work: Work, cohort: CohortState, profile: Profile) -> None:
    """The cohort is full: its evaluation time begins, and a judging process may claim it."""
    cohort.status = "ready"
    work.write(READY, (cohort.id, profile.cohort_evaluation_timeout_s))
    entered(work, cohort, None)
    work.filled.append(cohort)


def retire(work: Work, cohort: CohortState) -> None:
    """Another incarnation may take the identity of this one."""
    cohort.retired = True
    work.write(RETIRE, (cohort.id,))


def answer_copies(work: Work, group: GroupState, cohort: CohortState) -> Transaction[None]:
    """An incarnation of exact copies is answered from the completed one that they repeat, without judging (R24)."""
    from_id = group.copied_id
    assert from_id is not None  # noqa: S101  (only_copies holds only with a completed incarnation)
    rewards = yield from read_rewards(from_id)
    fail(work, cohort, "superseded", "Exact copies of the completed incarnation before it: answered from that one.")
    work.write(ANSWER_FROM, (cohort.id, from_id))
    work.settled[cohort.id] = Settlement(from_id, cohort.attempt, "completed", None, None, rewards)


def read_rewards(cohort_id: str) -> Transaction[tuple[MemberReward, ...]]:
    """The rewards of a completed cohort, from their rows."""
    rows = yield Step(READ_REWARDS, [(cohort_id,)])
    return tuple(MemberReward(slot, reward, bool(mask), defaulted) for _, slot, reward, mask, defaulted in rows)


def read_settlement(cohort: CohortState) -> Transaction[Settlement]:
    """The settlement of a settled cohort, from its rows."""
    rewards: tuple[MemberReward, ...] = ()
    missing = cohort.missing()
    if cohort.status == "completed":
        rewards = yield from read_rewards(cohort.id)
        present = {member.rollout_index for member in rewards}
        missing = tuple(slot for slot in range(cohort.size) if slot not in present)
    return Settlement(
        cohort.id, cohort.attempt, cohort.status, cohort.failure_kind, cohort.failure_reason, rewards, missing
    )


def expire(work: Work, cohort_ids: tuple[str, ...], context: Context) -> Transaction[list[CohortState]]:
    """Fail those that are still collecting after their deadline; the others whose evaluation time is over are returned.

    Those may have all their verdicts already, stored in time and not settled: settlement is tried first (L4).
    """
    overdue = []
    for cohort in (work.cohorts[id_] for id_ in cohort_ids if id_ in work.cohorts):
        if cohort.status == "collecting" and cohort.collection_over:
            yield from expire_collection(work, cohort, context)
        elif cohort.status in ("ready", "judging") and cohort.evaluation_over:
            overdue.append(cohort)
    return overdue


def cancel(work: Work, cohort_id: str, reason: str) -> Transaction[Settlement | None]:
    """Fail the cohort as `cancelled` unless it is settled; its settlement, or None if there is no such cohort."""
    cohort = work.cohorts.get(cohort_id)
    if cohort is None:
        return None
    if not cohort.settled:
        fail(work, cohort, "cancelled", reason)
        return work.settled[cohort.id]
    return (yield from read_settlement(cohort))


def lift(work: Work, cohort_id: str) -> bool:
    """Retire a failed legacy cohort, so that the next member opens a new incarnation of its identity (R24)."""
    cohort = work.cohorts.get(cohort_id)
    if cohort is None or cohort.status != "failed" or cohort.retired or cohort.key.kind != "legacy":
        return False
    retire(work, cohort)
    return True

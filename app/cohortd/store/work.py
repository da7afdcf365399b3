"""One transaction of the scribe: rows read under their locks, decisions on copies of them, writes in a fixed order.

The order of locks is the same in every process, so that no two batches deadlock: groups sorted by key, then every
cohort that any command touches sorted by id (TRIAL 5.2). SQLite has one writer, so there the same reads need no locks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cohortd.cohorts.identity import GroupKey
from cohortd.cohorts.outcome import Settlement
from cohortd.store import tables as t
from cohortd.store.statements import Now, Row, Statement, Step, Transaction, both, insert

LOCK_GROUPS = Statement(
    "lock_groups",
    insert(
        "lock_groups",
        t.cohort_group,
        dict.fromkeys(
            (
                "campaign",
                "kind",
                "group_id",
                "fingerprint",
                "newest_attempt",
                "task_index",
                "prompt_id",
                "principle",
                "conversation",
            )
        )
        | {"created_at": Now()},
        or_ignore=True,
    ).sqlite
    + " RETURNING campaign, kind, group_id",
    insert(
        "lock_groups",
        t.cohort_group,
        dict.fromkeys(
            (
                "campaign",
                "kind",
                "group_id",
                "fingerprint",
                "newest_attempt",
                "task_index",
                "prompt_id",
                "principle",
                "conversation",
            )
        )
        | {"created_at": Now()},
    ).postgresql.replace("INSERT INTO cohort_group (", "INSERT INTO cohort_group AS g (")
    # The update that never happens locks the row that is there and writes no version of it.
    + " ON CONFLICT (campaign, kind, group_id) DO UPDATE SET newest_attempt = g.newest_attempt WHERE false"
    + " RETURNING campaign, kind, group_id",
    returns=True,
)

READ_GROUPS = both(
    "read_groups",
    """SELECT g.campaign, g.kind, g.group_id, g.fingerprint, g.newest_attempt, c.id
         {using_from} cohort_group g
         LEFT JOIN cohort c ON c.campaign = g.campaign AND c.kind = g.kind AND c.group_id = g.group_id
                           AND c.attempt = g.newest_attempt AND NOT c.retired
        WHERE g.campaign = {k.campaign} AND g.kind = {k.kind} AND g.group_id = {k.group_id}""",
    keys="campaign kind group_id",
    types="text text text",
    returns=True,
)

_STATE = (
    "c.id, c.campaign, c.kind, c.group_id, c.attempt, c.incarnation, c.retired, c.size, c.status, c.failure_kind, "
    "c.failure_reason, c.fence, c.profile_digest, c.judges_early, c.claimed_by, c.results_dropped_at IS NOT NULL"
)

LOCK_COHORTS = Statement(
    "lock_cohorts",
    both(
        "",
        f"""SELECT {_STATE}, c.collection_deadline_at <= {{now}}, COALESCE(c.evaluation_deadline_at <= {{now}}, 0)
              FROM cohort c WHERE c.id = {{k.id}}""",
        keys="id",
        types="uuid",
    ).sqlite,
    # The clock is read outside the locking SELECT: inside, it would be read before the wait for the lock (TRIAL 5.16).
    both(
        "",
        f"""WITH c AS MATERIALIZED (
              SELECT * FROM cohort WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE)
            SELECT {_STATE}, c.collection_deadline_at <= {{now}}, COALESCE(c.evaluation_deadline_at <= {{now}}, false)
              FROM c""",
        keys="id",
        types="uuid",
    ).postgresql,
    returns=True,
)

READ_SLOTS = both(
    "read_slots",
    """SELECT s.cohort_id, s.rollout_index, s.response_digest {using_from} member_slot s WHERE s.cohort_id = {k.id}""",
    keys="id",
    types="uuid",
    returns=True,
)

READ_REWARDS = both(
    "read_rewards",
    """SELECT r.cohort_id, r.rollout_index, r.reward, r.mask_sample, r.defaulted_comparisons
         {using_from} member_reward r WHERE r.cohort_id = {k.id}""",
    keys="id",
    types="uuid",
    returns=True,
)


@dataclass(slots=True)
class GroupState:
    """A group row under its lock."""

    key: GroupKey
    fingerprint: bytes
    newest_attempt: int
    live: str | None  # id of the live cohort of the newest attempt
    fresh: bool
    used: bool  # a member was accepted, now or before
    copied: dict[int, bytes] = field(default_factory=dict)  # legacy: slots of the last completed incarnation
    copied_id: str | None = None
    next_incarnation: int | None = None  # of its newest attempt, once known


@dataclass(slots=True, eq=False)
class CohortState:
    """A cohort row under its lock, as this transaction leaves it."""

    id: str
    key: GroupKey
    attempt: int
    incarnation: int
    retired: bool
    size: int
    status: str
    failure_kind: str | None
    failure_reason: str | None
    fence: int
    profile_digest: str
    judges_early: bool
    claimed_by: int | None
    results_dropped: bool
    collection_over: bool
    evaluation_over: bool
    slots: dict[int, bytes] = field(default_factory=dict)  # digests by slot; only where a command asked for them

    @property
    def settled(self) -> bool:
        """Nothing changes it any more."""
        return self.status in ("completed", "failed")

    def missing(self) -> tuple[int, ...]:
        """The slots that no member has taken; none where the slots were not read."""
        return tuple(slot for slot in range(self.size) if slot not in self.slots) if self.slots else ()

    @classmethod
    def of(cls, row: Row) -> CohortState:
        """The state in a row of LOCK_COHORTS."""
        (
            id_, campaign, kind, group_id, attempt, incarnation, retired, size, status, failure_kind, failure_reason,
            fence, profile_digest, judges_early, claimed_by, results_dropped, collection_over, evaluation_over,
        ) = row  # fmt: skip
        return cls(
            id=str(id_), key=GroupKey(campaign, kind, group_id), attempt=attempt, incarnation=incarnation,
            retired=bool(retired), size=size, status=status, failure_kind=failure_kind, failure_reason=failure_reason,
            fence=fence, profile_digest=profile_digest, judges_early=bool(judges_early), claimed_by=claimed_by,
            results_dropped=bool(results_dropped), collection_over=bool(collection_over),
            evaluation_over=bool(evaluation_over),
        )  # fmt: skip


class Work:
    """What one transaction has read, and what it is going to write."""

    def __init__(self, order: tuple[Statement, ...]) -> None:
        self._order = order
        self._writes: dict[str, list[Row]] = {}
        self.groups: dict[GroupKey, GroupState] = {}
        self.cohorts: dict[str, CohortState] = {}
        self.settled: dict[str, Settlement] = {}
        self.filled: list[CohortState] = []  # ready since this transaction, in order
        self.grown: list[CohortState] = []  # judge early and have a new member, in order
        self.overdue: list[CohortState] = []  # their evaluation time is over; they fail unless they can be settled
        self.opened = 0
        self.new_campaigns: set[str] = set()
        self.new_profiles: set[str] = set()
        self.unwritten: set[str] = set()  # cohorts whose own or whose members' rows wait for the next flush

    def write(self, statement: Statement, row: Row) -> None:
        """Remember a row for the statement; it is written in the next flush."""
        self._writes.setdefault(statement.name, []).append(row)

    def flush(self) -> Transaction[None]:
        """Write all that was remembered, statement by statement in the fixed order."""
        self.unwritten.clear()
        for statement in self._order:
            if rows := self._writes.pop(statement.name, None):
                yield Step(statement, rows)
        if self._writes:
            raise LookupError(f"statements without a place in the order of writes: {sorted(self._writes)}")

    def written(self, *cohorts: CohortState) -> Transaction[None]:
        """Flush before the end of a cohort that began or grew in this transaction: ends come first in the order."""
        if any(cohort.id in self.unwritten for cohort in cohorts):
            yield from self.flush()

    def lock_cohorts(self, ids: Iterable[str]) -> Transaction[None]:
        """Lock and read these cohorts, in the order of their ids."""
        wanted = sorted(set(ids))
        if wanted:
            for row in (yield Step(LOCK_COHORTS, [(id_,) for id_ in wanted])):
                state = CohortState.of(row)
                self.cohorts[state.id] = state

"""Admission: a response takes its slot once, committed before anybody is told (R10), or the caller learns why not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cohortd.cohorts import admission as rules
from cohortd.cohorts.identity import GroupKey
from cohortd.cohorts.outcome import Failed, Pending
from cohortd.errors import Refused
from cohortd.store import tables as t
from cohortd.store import transitions
from cohortd.store.commands import Admit, Admitted
from cohortd.store.statements import Literal, Now, Statement, Step, Transaction, both, insert
from cohortd.store.work import LOCK_GROUPS, READ_GROUPS, READ_SLOTS, CohortState, GroupState, Work

if TYPE_CHECKING:
    from cohortd.store.batch import Context

NEVER = Literal("'1970-01-01T00:00:00.000Z'", "'1970-01-01T00:00:00Z'::timestamptz")

_INSERT_CAMPAIGN = insert("insert_campaign", t.campaign, {"name": None, "created_at": Now()}, or_ignore=True)
INSERT_CAMPAIGN = Statement(
    "insert_campaign",
    f"{_INSERT_CAMPAIGN.sqlite} RETURNING name",
    f"{_INSERT_CAMPAIGN.postgresql} RETURNING name",
    returns=True,
)
INSERT_PROFILE = insert(
    "insert_profile", t.judging_profile, {"digest": None, "document": None, "created_at": Now()}, or_ignore=True
)
RAISE_ATTEMPT = both(
    "raise_attempt",
    """UPDATE cohort_group SET newest_attempt = {k.attempt} {from}
        WHERE cohort_group.campaign = {k.campaign} AND cohort_group.kind = {k.kind} AND cohort_group.group_id = {k.group_id}
          AND cohort_group.newest_attempt < {k.attempt}""",
    keys="campaign kind group_id attempt",
    types="text text text integer",
)
RESTORE_PROMPT = both(
    "restore_prompt",
    """UPDATE cohort_group SET conversation = {k.conversation}, principle = {k.principle} {from}
        WHERE cohort_group.campaign = {k.campaign} AND cohort_group.kind = {k.kind} AND cohort_group.group_id = {k.group_id}
          AND cohort_group.conversation IS NULL""",
    keys="campaign kind group_id conversation principle",
    types="text text text text text",
)
DROP_UNUSED_GROUP = both(
    "drop_unused_group",
    """DELETE FROM cohort_group {delete_using}
        WHERE cohort_group.campaign = {k.campaign} AND cohort_group.kind = {k.kind} AND cohort_group.group_id = {k.group_id}""",
    keys="campaign kind group_id",
    types="text text text",
)
DROP_UNUSED_CAMPAIGN = both(
    "drop_unused_campaign",
    "DELETE FROM campaign {delete_using} WHERE campaign.name = {k.name}",
    keys="name",
    types="text",
)
INSERT_COHORT = insert(
    "insert_cohort",
    t.cohort,
    {
        "id": None,
        "campaign": None,
        "kind": None,
        "group_id": None,
        "attempt": None,
        "incarnation": None,
        "size": None,
        "status": Literal("'collecting'", "'collecting'"),
        "created_at": Now(),
        "collection_deadline_at": Now(plus=True),
        "judge": None,
        "profile_digest": None,
        "judges_early": None,
        "lease_expires_at": NEVER,
        "rejudge_of": None,
    },
)
INSERT_MEMBER = insert(
    "insert_member",
    t.member_slot,
    {
        "cohort_id": None,
        "rollout_index": None,
        "response_digest": None,
        "arrived_at": Now(),
        "text_escaped": None,
        "answer_cut": None,
        "metadata": None,
        "answer": None,
        "reasoning": None,
    },
)
INSERT_BODY = insert(
    "insert_body", t.member_body, dict.fromkeys(("cohort_id", "rollout_index", "codec", "wire", "body"))
)
INCARNATIONS = both(
    "incarnations",
    """SELECT c.campaign, c.kind, c.group_id, c.incarnation, c.id, c.status {using_from} cohort c
        WHERE c.campaign = {k.campaign} AND c.kind = {k.kind} AND c.group_id = {k.group_id} AND c.attempt = {k.attempt}
        ORDER BY c.incarnation""",
    keys="campaign kind group_id attempt",
    types="text text text integer",
    returns=True,
)


def lock_groups(work: Work, commands: Sequence[Admit], context: Context) -> Transaction[None]:
    """Lock the groups of all admissions in the order of their keys, making those that do not exist."""
    first: dict[GroupKey, Admit] = {}
    for command in commands:
        # A new group takes prompt and attempt of the member that opens it, not of one that is refused before that.
        if command.group not in first or (not _may_open(first[command.group]) and _may_open(command)):
            first[command.group] = command
    keys = sorted(first)
    campaigns = [(name,) for name in sorted({key.campaign for key in keys} - context.stored_campaigns)]
    if campaigns:
        work.new_campaigns = {str(row[0]) for row in (yield Step(INSERT_CAMPAIGN, campaigns))}
    fresh = yield Step(
        LOCK_GROUPS,
        [
            (
                key.campaign, key.kind, key.group_id, first[key].fingerprint, first[key].attempt,
                first[key].task_index, first[key].prompt_id, first[key].principle, first[key].conversation,
            )
            for key in keys
        ],
    )  # fmt: skip
    made = {GroupKey(*row) for row in fresh}
    for row in (yield Step(READ_GROUPS, [(key.campaign, key.kind, key.group_id) for key in keys])):
        campaign, kind, group_id, fingerprint, newest, live = row
        key = GroupKey(campaign, kind, group_id)
        is_new = key in made
        work.groups[key] = GroupState(
            key, bytes(fingerprint), newest, str(live) if live is not None else None, is_new, not is_new
        )


def read_slots(work: Work) -> Transaction[None]:
    """Read which slots of the groups' live cohorts are taken, and by what."""
    ids = sorted(group.live for group in work.groups.values() if group.live is not None)
    if ids:
        for cohort_id, rollout_index, digest in (yield Step(READ_SLOTS, [(id_,) for id_ in ids])):
            work.cohorts[str(cohort_id)].slots[rollout_index] = bytes(digest)
    yield from _read_last_completed(work)


def _read_last_completed(work: Work) -> Transaction[None]:
    """For legacy groups: the last completed incarnation's slots, which a re-sent run is recognised by (R24)."""
    legacy = sorted(key for key, group in work.groups.items() if key.kind == "legacy" and not group.fresh)
    if not legacy:
        return
    for row in (yield Step(INCARNATIONS, [(key.campaign, key.kind, key.group_id, 0) for key in legacy])):
        campaign, kind, group_id, incarnation, cohort_id, status = row
        group = work.groups[GroupKey(campaign, kind, group_id)]
        group.next_incarnation = incarnation + 1
        if status == "completed":
            group.copied_id = str(cohort_id)
    completed = {group.copied_id: group for group in work.groups.values() if group.copied_id is not None}
    if completed:
        for cohort_id, rollout_index, digest in (yield Step(READ_SLOTS, [(id_,) for id_ in sorted(completed)])):
            completed[str(cohort_id)].copied[rollout_index] = bytes(digest)


def admit(work: Work, command: Admit, context: Context) -> Transaction[Admitted]:
    """Decide one admission on the rows as this transaction leaves them, and remember its writes."""
    group = work.groups[command.group]
    cohort = work.cohorts[group.live] if group.live is not None else None
    decision = rules.decide(_arrival(command), _group_view(group), _cohort_view(group, cohort, context))
    if cohort is None:
        if isinstance(decision, rules.Refuse):
            return decision.refusal
        size = decision.size if isinstance(decision, rules.Open) else 0
        return (yield from _open(work, command, group, size, context))
    match decision:
        case rules.Refuse(refusal):
            return refusal
        case rules.Expire():
            yield from work.written(cohort)
            yield from transitions.expire_collection(work, cohort, context)
            return (yield from admit(work, command, context))
        case rules.ReplayFailure(advice):
            return _failure(cohort, command.rollout_index, advice)
        case rules.Attach():
            return (yield from _attached(cohort, command.rollout_index))
        case rules.Store():
            return (yield from _store(work, command, group, cohort))
        case rules.Open() | rules.Reopen() if not context.may_open(work.opened):
            return _overloaded()  # before the older cohort is touched: it goes on, and is still filled (R15, R61)
        case rules.Open(size):
            if decision.supersedes:
                yield from work.written(cohort)
                transitions.supersede(work, cohort, command.attempt)
            return (yield from _open(work, command, group, size, context))
        case rules.Reopen(size):
            yield from work.written(cohort)
            if decision.answer_copies:
                yield from transitions.answer_copies(work, group, cohort)
            transitions.retire(work, cohort)
            return (yield from _open(work, command, group, size, context))


def _may_open(command: Admit) -> bool:
    return isinstance(rules.decide(_arrival(command), None, None), rules.Open)


def _arrival(command: Admit) -> rules.Arrival:
    return rules.Arrival(
        command.group.kind, command.attempt, command.rollout_index, command.size, command.default_size,
        command.fingerprint, command.digest,
    )  # fmt: skip


def _group_view(group: GroupState) -> rules.GroupView:
    return rules.GroupView(group.fingerprint, group.newest_attempt, group.fresh and not group.used)


def _cohort_view(group: GroupState, cohort: CohortState | None, context: Context) -> rules.CohortView | None:
    if cohort is None:
        return None
    same_identity = cohort.status == "failed" and (
        context.profile(cohort.profile_digest).on_failed_retry == "same_identity"
    )
    return rules.CohortView(
        cohort.id, cohort.attempt, cohort.size, cohort.status, cohort.failure_kind, cohort.collection_over,
        cohort.results_dropped, same_identity, cohort.slots, group.copied,
    )  # fmt: skip


def _failure(cohort: CohortState, rollout_index: int, advice: str) -> Failed:
    reason = " ".join(part for part in (cohort.failure_reason, advice) if part)
    kind = cohort.failure_kind or "internal"
    return Failed(cohort.id, cohort.attempt, rollout_index, kind, reason, cohort.missing())


def _attached(cohort: CohortState, rollout_index: int) -> Transaction[Admitted]:
    if cohort.status == "completed":
        settlement = yield from transitions.read_settlement(cohort)
        return settlement.outcome(rollout_index)
    return Pending(cohort.id, cohort.attempt, rollout_index, cohort.status)


def _overloaded() -> Refused:
    return Refused("overloaded", "Too many cohorts are active. Cohorts that exist already are still filled.")


def _open(work: Work, command: Admit, group: GroupState, size: int, context: Context) -> Transaction[Admitted]:
    """Open the next cohort of the group with this member in it."""
    if not context.may_open(work.opened):
        return _overloaded()
    if command.attempt > group.newest_attempt:
        work.write(RAISE_ATTEMPT, (*command.group.parts(), command.attempt))
        group.newest_attempt, group.next_incarnation = command.attempt, 0
    elif group.next_incarnation is None:
        rows = [] if group.fresh else (yield Step(INCARNATIONS, [(*command.group.parts(), command.attempt)]))
        group.next_incarnation = max((row[3] for row in rows), default=-1) + 1
    if not group.fresh:  # retention may have dropped its prompt
        work.write(RESTORE_PROMPT, (*command.group.parts(), command.conversation, command.principle))
    profile = command.frozen.profile
    cohort = CohortState(
        id=context.ids.new(), key=command.group, attempt=command.attempt, incarnation=group.next_incarnation,
        retired=False, size=size, status="collecting", failure_kind=None, failure_reason=None, fence=0,
        profile_digest=command.frozen.digest, judges_early=profile.judge_start == "as_pairs_arrive", claimed_by=None,
        results_dropped=False, collection_over=False, evaluation_over=False,
    )  # fmt: skip
    group.next_incarnation += 1
    group.live, group.used = cohort.id, True
    work.cohorts[cohort.id] = cohort
    work.opened += 1
    context.remember(command.frozen)
    if command.frozen.digest not in context.stored_profiles | work.new_profiles:
        work.new_profiles.add(command.frozen.digest)
        work.write(INSERT_PROFILE, (command.frozen.digest, command.frozen.document))
    work.write(
        INSERT_COHORT,
        (
            cohort.id, *command.group.parts(), cohort.attempt, cohort.incarnation, size,
            profile.cohort_collection_timeout_s, profile.judge, cohort.profile_digest, cohort.judges_early,
            command.rejudge_of,
        ),
    )  # fmt: skip
    transitions.entered(work, cohort, None)
    for planned in profile.planned(size):
        work.write(
            transitions.INSERT_COMPARISON,
            (cohort.id, planned.position, planned.first, planned.second, planned.judge_index),
        )
    return (yield from _store(work, command, group, cohort))


def _store(work: Work, command: Admit, group: GroupState, cohort: CohortState) -> Transaction[Admitted]:
    """Put the response into its slot; a cohort that it fills is ready."""
    slot = command.rollout_index
    work.write(
        INSERT_MEMBER,
        (
            cohort.id, slot, command.digest, command.text_escaped, command.answer_cut, command.metadata,
            command.answer, command.reasoning,
        ),
    )  # fmt: skip
    work.write(INSERT_BODY, (cohort.id, slot, command.codec, command.wire, command.body))
    cohort.slots[slot] = command.digest
    work.unwritten.add(cohort.id)
    if cohort.judges_early:
        work.grown.append(cohort)
    if len(cohort.slots) == cohort.size:
        if group.copied and cohort.slots == group.copied:
            yield from work.written(cohort)
            yield from transitions.answer_copies(work, group, cohort)
            transitions.retire(work, cohort)
            group.live = None
        else:
            transitions.ready(work, cohort, command.frozen.profile)
    return Pending(cohort.id, cohort.attempt, slot, cohort.status)


def drop_unused(work: Work) -> None:
    """What was made for refused members alone leaves nothing behind (R2: nothing is written on a refusal)."""
    for key, group in work.groups.items():
        if group.fresh and not group.used:
            work.write(DROP_UNUSED_GROUP, key.parts())
    for name in work.new_campaigns - {key.campaign for key, group in work.groups.items() if group.used}:
        work.write(DROP_UNUSED_CAMPAIGN, (name,))

"""One batch of commands as one transaction: lock, read, decide, write, settle, claim (DESIGN 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cohortd.cohorts.outcome import Settlement
from cohortd.cohorts.profile import Profile
from cohortd.store import admission, claims, copies, settlement, transitions, verdicts
from cohortd.store.commands import (
    Admit,
    AnswerCopies,
    Cancel,
    Claim,
    Command,
    Expire,
    FrozenProfile,
    Kept,
    Lift,
    RecordCall,
    RecordFailure,
    RecordVerdict,
    Refresh,
    Release,
    Renew,
    Results,
    Settle,
)
from cohortd.store.ids import CohortIds
from cohortd.store.statements import Statement, Step, Transaction, both
from cohortd.store.work import READ_SLOTS, Work

# What a later statement of this order needs, an earlier one has written: parents before children, verdicts and failed
# comparisons while their cohort is open, the end of the old cohort before the beginning of the new one, members while
# their cohort still collects.
ORDER: tuple[Statement, ...] = (
    admission.INSERT_PROFILE,
    verdicts.GIVE_VERDICT,
    verdicts.COUNT_TRY,
    verdicts.FAIL_COMPARISON,
    verdicts.INSERT_CALL,
    transitions.FAIL,
    transitions.ANSWER_FROM,
    transitions.RETIRE,
    transitions.SET_ASIDE,
    transitions.MOVE_COMPARISON,
    admission.RAISE_ATTEMPT,
    admission.RESTORE_PROMPT,
    admission.INSERT_COHORT,
    transitions.INSERT_COMPARISON,
    admission.INSERT_MEMBER,
    admission.INSERT_BODY,
    transitions.READY,
    transitions.BEGIN_JUDGING,
    settlement.INSERT_REWARD,
    settlement.COMPLETE,
    claims.RELEASE,
    transitions.ENTERED,
    admission.DROP_UNUSED_GROUP,
    admission.DROP_UNUSED_CAMPAIGN,
)
READ_PROFILE = both(
    "read_profile",
    "SELECT f.digest, f.document {using_from} judging_profile f WHERE f.digest = {k.digest}",
    keys="digest",
    types="text",
    returns=True,
)


@dataclass(slots=True)
class Context:
    """What a process brings to its transactions: who it is, what it may claim, and what it has read before."""

    token: int  # fresh per process start; never a host name or a pid
    lease_s: float = 15.0
    judges: tuple[str, ...] = ()  # judges that this process is configured for
    room: int = 0  # cohorts that it could begin to judge now
    open_room: int = 2**31  # cohorts that may still be opened (R61)
    ids: CohortIds = field(default_factory=CohortIds)
    profiles: dict[str, Profile] = field(default_factory=dict)
    stored_campaigns: set[str] = field(default_factory=set)  # rows that a commit has shown to be there
    stored_profiles: set[str] = field(default_factory=set)
    turn: int = 0

    def profile(self, digest: str) -> Profile:
        """A profile that this process has read; `read_profiles` has seen to it."""
        return self.profiles[digest]

    def remember(self, frozen: FrozenProfile) -> None:
        """Keep a profile that rows now name."""
        self.profiles[frozen.digest] = frozen.profile

    def committed(self, results: Results) -> None:
        """What the commit stored need not be asked for again; foreign keys notice where that is no longer true."""
        self.stored_campaigns |= results.campaigns
        self.stored_profiles |= results.profiles

    def doubt(self) -> bool:
        """Believe no longer what was stored; whether anything was believed."""
        believed = bool(self.stored_campaigns or self.stored_profiles)
        self.stored_campaigns.clear()
        self.stored_profiles.clear()
        return believed

    def may_open(self, opened: int) -> bool:
        """Whether one more cohort may be opened after `opened` of this transaction (R61)."""
        return opened < self.open_room

    def rotated(self, sources: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """The sources, beginning with another one each time, so that no campaign is always first."""
        self.turn += 1
        at = self.turn % len(sources) if sources else 0
        return sources[at:] + sources[:at]


def transact(commands: Sequence[Command], context: Context) -> Transaction[Results]:
    """Run the commands in their order of arrival as one transaction and say what came of each."""
    work = Work(ORDER)
    admissions = [command for command in commands if isinstance(command, Admit)]
    if admissions:
        yield from admission.lock_groups(work, admissions, context)
    yield from work.lock_cohorts(_touched(commands, work))
    yield from read_profiles(work, context)
    if admissions:
        yield from admission.read_slots(work)
    yield from _read_failing_slots(work, commands)
    results = Results()
    for command in commands:
        results.answers.append((yield from _run(work, command, context)))
    admission.drop_unused(work)
    yield from work.flush()
    yield from _settle(work, commands, context)
    yield from _claim(work, commands, context, results)
    yield from work.flush()
    results.settled = work.settled
    results.opened = work.opened
    results.campaigns = {key.campaign for key, group in work.groups.items() if group.used or not group.fresh}
    results.profiles = work.new_profiles
    taken = {claimed.held.cohort_id for claimed in results.claimed}
    results.unclaimed = any(
        cohort.id not in taken and not cohort.settled and cohort.claimed_by != context.token
        for cohort in (*work.filled, *work.grown)
    )
    results.grown = {cohort.id for cohort in work.grown if cohort.claimed_by == context.token and not cohort.settled}
    _tell_settlements(commands, results)
    return results


def _touched(commands: Sequence[Command], work: Work) -> set[str]:
    """Every cohort that a command of the batch may write."""
    touched = {group.live for group in work.groups.values() if group.live is not None}
    for command in commands:
        match command:
            case RecordCall() | RecordVerdict() | RecordFailure() | Settle():
                touched.add(command.held.cohort_id)
            case Renew() | Release():
                touched.update(held.cohort_id for held in command.held)
            case Expire() | AnswerCopies():
                touched.update(command.cohort_ids)
            case Cancel() | Lift():
                touched.add(command.cohort_id)
            case Admit() | Claim() | Refresh():
                pass  # admissions lock by their groups; claims and looks choose rows for themselves
    return touched


def read_profiles(work: Work, context: Context) -> Transaction[None]:
    """Read the frozen profiles of the locked cohorts that this process has not seen yet."""
    unknown = sorted({cohort.profile_digest for cohort in work.cohorts.values()} - context.profiles.keys())
    if unknown:
        for digest, document in (yield Step(READ_PROFILE, [(digest,) for digest in unknown])):
            context.profiles[digest] = Profile.from_document(document)


def _read_failing_slots(work: Work, commands: Sequence[Command]) -> Transaction[None]:
    """The slots of cohorts that may fail here, so that the failure can name the missing ones."""
    ids = {id_ for command in commands if isinstance(command, Expire) for id_ in command.cohort_ids}
    ids |= {command.cohort_id for command in commands if isinstance(command, Cancel)}
    ids |= {command.held.cohort_id for command in commands if isinstance(command, RecordFailure)}
    ids |= {cohort.id for cohort in work.cohorts.values() if cohort.evaluation_over and not cohort.settled}
    wanted = sorted(id_ for id_ in ids if id_ in work.cohorts and not work.cohorts[id_].slots)
    if wanted:
        for cohort_id, rollout_index, digest in (yield Step(READ_SLOTS, [(id_,) for id_ in wanted])):
            work.cohorts[str(cohort_id)].slots[rollout_index] = bytes(digest)


def _run(work: Work, command: Command, context: Context) -> Transaction[Any]:
    match command:
        case Admit():
            return (yield from admission.admit(work, command, context))
        case RecordVerdict():
            return verdicts.record_verdict(work, command, context)
        case RecordCall():
            return verdicts.record_call(work, command, context)
        case RecordFailure():
            return verdicts.record_failure(work, command, context)
        case Settle():
            return verdicts.lost(work, command.held, context) or Kept()
        case Renew() | Refresh() | Release():
            return (yield from _run_of_holder(work, command, context))
        case Expire():
            work.overdue += yield from transitions.expire(work, command.cohort_ids, context)
            return None
        case AnswerCopies():
            return (yield from copies.answer_waiting_copies(work, command.cohort_ids, context))
        case Cancel():
            return (yield from transitions.cancel(work, command.cohort_id, command.reason))
        case Lift():
            return transitions.lift(work, command.cohort_id)
        case Claim():
            return None  # answered by what `_claim` takes, after everything else is written


def _run_of_holder(work: Work, command: Renew | Refresh | Release, context: Context) -> Transaction[Any]:
    match command:
        case Renew():
            return (yield from claims.renew(command, context))
        case Refresh():
            yield from work.flush()  # members that this batch stores count
            return (yield from claims.refresh(command, context))
        case Release():
            return claims.release(work, command, context)


def _settle(work: Work, commands: Sequence[Command], context: Context) -> Transaction[None]:
    wanted: dict[str, settlement.Wanted] = {}
    for command in commands:
        if isinstance(command, (Settle, RecordVerdict)) and command.last:
            cohort = work.cohorts.get(command.held.cohort_id)
            if cohort is not None and verdicts.lost(work, command.held, context) is None:
                wanted[cohort.id] = settlement.Wanted(cohort, command.profile)
    for cohort in work.overdue:
        wanted[cohort.id] = settlement.Wanted(cohort, context.profile(cohort.profile_digest))
    yield from settlement.settle(work, wanted)
    for cohort in work.overdue:
        transitions.expire_evaluation(work, cohort, context)
    yield from work.flush()


def _claim(work: Work, commands: Sequence[Command], context: Context, results: Results) -> Transaction[None]:
    """Claim what this batch filled while there is room, then what waits, if somebody asked for it."""
    early = [cohort for cohort in work.grown if cohort.claimed_by is None and len(cohort.slots) > 1]
    mine = [
        cohort
        for cohort in dict.fromkeys([*work.filled, *early])
        if not cohort.settled and context.profile(cohort.profile_digest).judge in context.judges
    ]
    ids = yield from claims.claim_filled(work, mine[: context.room], context)
    looks = [command for command in commands if isinstance(command, Claim)]
    asked = max((command.limit for command in looks if not command.alone), default=0)
    if asked > len(ids):
        ids += yield from claims.claim_waiting(work, asked - len(ids), context)
    if not ids and any(command.alone for command in looks):
        ids = yield from claims.claim_lone(work, context)
    if looks:
        results.lone_waiting = bool((yield from claims.lone_sources(context)))
    results.claimed = yield from claims.load_claimed(work, ids, context)


def _tell_settlements(commands: Sequence[Command], results: Results) -> None:
    """Give the one whose verdict was the last the settlement that it brought about."""
    for at, command in enumerate(commands):
        if isinstance(command, (RecordVerdict, Settle)) and results.answers[at] == Kept():
            settled: Settlement | None = results.settled.get(command.held.cohort_id)
            if settled is not None:
                results.answers[at] = Kept(settled)

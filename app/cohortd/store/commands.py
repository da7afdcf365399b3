"""What the scribe can be asked to write. Every command may be run again after an unknown COMMIT and then changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cohortd.cohorts.identity import GroupKey
from cohortd.cohorts.outcome import Failed, Pending, Rewarded, Settlement
from cohortd.cohorts.profile import Profile
from cohortd.errors import Refused


@dataclass(frozen=True, slots=True)
class FrozenProfile:
    """A judging profile with the digest and document under which it is stored."""

    profile: Profile
    digest: str
    document: str


@dataclass(slots=True)
class Admit:
    """Store a response in its slot, or say what became of the slot; answered with an outcome or a refusal.

    `body` is what `member_body` keeps, under `codec`; texts are readable (R71) and `text_escaped` says whether that
    changed them. `rejudge_of` links a cohort that judges stored answers again.
    """

    group: GroupKey
    attempt: int
    rollout_index: int
    size: int | None
    default_size: int | None
    fingerprint: bytes
    digest: bytes
    frozen: FrozenProfile
    conversation: str
    principle: str | None
    answer: str
    reasoning: str
    text_escaped: bool
    answer_cut: bool
    body: bytes
    codec: int
    wire: str
    metadata: str | None = None
    task_index: int | None = None
    prompt_id: str | None = None
    rejudge_of: str | None = None

    def weight(self) -> int:
        """Bytes that this command adds to a batch."""
        return len(self.body) + len(self.answer) + len(self.reasoning) + len(self.conversation)


Admitted = Pending | Rewarded | Failed | Refused


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP try that ended, as `judge_call` keeps it."""

    first: int
    second: int
    judge_index: int
    try_no: int
    outcome: str
    budget: str
    answered: bool
    exhausted: bool
    http_status: int | None
    endpoint: str | None
    error_type: str | None
    error_code: str | None
    message: str | None
    judge_model: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    latency_ms: float
    text: str | None
    reasoning: str | None
    early: bool = False  # its tries began while siblings were missing (R36)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge said of a comparison, or the neutral verdict that stands in for it."""

    first: int
    second: int
    judge_index: int
    score_1: float
    score_2: float
    ranking: float
    defaulted: bool
    ambiguous: bool


@dataclass(frozen=True, slots=True)
class Held:
    """A cohort that the caller believes to hold under this fence."""

    cohort_id: str
    fence: int


@dataclass(frozen=True, slots=True)
class RecordCall:
    """Store a try that ended without a verdict; answered with Kept, or Lost when the caller no longer holds the cohort."""

    held: Held
    call: Call

    def weight(self) -> int:
        """Bytes that this command adds to a batch."""
        return len(self.call.text or "") + 200


@dataclass(frozen=True, slots=True)
class RecordVerdict:
    """Store a verdict with its last try, and settle the cohort if it was the last; answered with Kept or Lost."""

    held: Held
    verdict: Verdict
    call: Call | None
    text: str | None
    profile: Profile
    last: bool  # no other comparison of the cohort is open, as far as the caller knows

    def weight(self) -> int:
        """Bytes that this command adds to a batch."""
        return len(self.text or "") + 300


@dataclass(frozen=True, slots=True)
class RecordFailure:
    """A comparison ended without a verdict: fail its cohort as `judge_failed`; answered with Kept or Lost."""

    held: Held
    first: int
    second: int
    judge_index: int
    reason: str
    call: Call | None

    def weight(self) -> int:
        """Bytes that this command adds to a batch."""
        return 500


@dataclass(frozen=True, slots=True)
class Settle:
    """Settle a cohort whose verdicts are all stored; answered with Kept or Lost."""

    held: Held
    profile: Profile
    last: bool = True

    def weight(self) -> int:
        """Bytes that this command adds to a batch."""
        return 100


@dataclass(frozen=True, slots=True)
class Renew:
    """Extend the leases that are still the caller's; answered with the set of cohort ids that are."""

    held: tuple[Held, ...]

    def weight(self) -> int:
        """Bytes that this command adds to a batch."""
        return 60 * len(self.held)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the holder of a cohort that judges early knows of it."""

    held: Held
    members: int
    collecting: bool


@dataclass(frozen=True, slots=True)
class Refresh:
    """Read again the cohorts that have grown since they were seen (R36).

    Answered with (those that changed, as Claimed by id; the ids that are the caller's no more).
    """

    seen: tuple[Seen, ...]

    def weight(self) -> int:
        """Bytes that this command adds to a batch."""
        return 60 * len(self.seen)


@dataclass(frozen=True, slots=True)
class Release:
    """Give leases back, so that others may claim at once; answered with None."""

    held: tuple[Held, ...]

    def weight(self) -> int:
        """Bytes that this command adds to a batch."""
        return 60 * len(self.held)


@dataclass(frozen=True, slots=True)
class Expire:
    """Look at the deadlines of these cohorts by the database's clock and fail those that passed; answered with None."""

    cohort_ids: tuple[str, ...]

    def weight(self) -> int:
        """Bytes that this command adds to a batch."""
        return 60 * len(self.cohort_ids)


@dataclass(frozen=True, slots=True)
class AnswerCopies:
    """Answer those of these legacy cohorts that hold nothing but copies and wait for nobody (R24); answered with None."""

    cohort_ids: tuple[str, ...]

    def weight(self) -> int:
        """Bytes that this command adds to a batch."""
        return 60 * len(self.cohort_ids)


@dataclass(frozen=True, slots=True)
class Cancel:
    """Fail an open cohort as `cancelled`; answered with its settlement, old or new, or None if there is no such cohort."""

    cohort_id: str
    reason: str

    def weight(self) -> int:
        """Bytes that this command adds to a batch."""
        return 200


@dataclass(frozen=True, slots=True)
class Lift:
    """Retire a failed legacy cohort: its key may be used again (`cohortd release`); answered with True if it was."""

    cohort_id: str

    def weight(self) -> int:
        """Bytes that this command adds to a batch."""
        return 100


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim cohorts that wait for a judge; `alone`: one that was claimed in vain too often, and nothing else (L7)."""

    limit: int
    alone: bool = False

    def weight(self) -> int:
        """Bytes that this command adds to a batch."""
        return 100


Command = (
    Admit
    | RecordCall
    | RecordVerdict
    | RecordFailure
    | Settle
    | Renew
    | Refresh
    | Release
    | Expire
    | AnswerCopies
    | Cancel
    | Lift
    | Claim
)


@dataclass(frozen=True, slots=True)
class Kept:
    """The write is committed."""

    settled: Settlement | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """The caller no longer holds the cohort, or its time is over: nothing was written, its calls are to be dropped."""

    why: str


@dataclass(frozen=True, slots=True)
class Missing:
    """A comparison without a verdict, with what its earlier tries have cost."""

    position: int
    first: int
    second: int
    judge_index: int
    tries: int
    answers_spent: int
    transport_spent: int
    answered: bool
    exhausted: int
    refused: bool = False  # an early try was refused for good (R36)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claimed cohort with all that judging it needs; texts are exact, by slot."""

    held: Held
    campaign: str
    group_id: str
    attempt: int
    size: int
    judge: str
    profile_digest: str
    profile_document: str
    conversation: str
    principle: str | None
    answers: Mapping[int, str]
    missing: tuple[Missing, ...]
    evaluation_left_s: float | None  # None while it is still collecting (R36)
    collecting: bool = False  # siblings are missing: only pairs that are there may be judged (R36)
    alone: bool = False  # after two idle claims (L7)


@dataclass(slots=True)
class Results:
    """What a committed batch gives back: an answer for each command, and whose wait is over."""

    answers: list[Any] = field(default_factory=list)
    settled: dict[str, Settlement] = field(default_factory=dict)
    claimed: list[Claimed] = field(default_factory=list)
    lone_waiting: bool | None = None  # a cohort waits to be claimed alone; None: nobody looked
    unclaimed: bool = False  # a cohort was filled or grew that this batch did not claim
    grown: set[str] = field(default_factory=set)  # cohorts of this process that judge early and have a new member
    opened: int = 0
    campaigns: set[str] = field(default_factory=set)  # that are stored now
    profiles: set[str] = field(default_factory=set)

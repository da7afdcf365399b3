"""A claimed cohort in the hands of this process, and what its comparisons need: values, and no life of their own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import msgspec

from cohortd.cohorts.conversation import Message, cut_middle, readable, shown
from cohortd.cohorts.profile import Profile
from cohortd.judges.caller import Defaulted, Ended, JudgeFailure, TriesSpent, TryRecord, VerdictReached
from cohortd.judges.wire import PairBodies, decode
from cohortd.store.commands import Call, Claimed, Held, Missing, RecordFailure, RecordVerdict, Seen, Verdict

Key = tuple[int, int, int]  # first, second, judge_index


@dataclass(slots=True, eq=False)
class Job:
    """A claimed cohort: what was read of it, and which of its comparisons are under way."""

    claimed: Claimed
    profile: Profile
    deadline: float | None = None  # on the process's clock; the database's decides
    under_way: dict[Key, asyncio.Task[None]] = field(default_factory=dict)  # begun, and not known to have ended
    ended: set[Key] = field(default_factory=set)  # their last word is with the scribe, whatever was read before
    storing: int = 0  # last words whose commit is awaited
    settled: bool = False
    early_over: set[Key] = field(default_factory=set)  # judged early without a verdict; begun again when full (R36)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def held(self) -> Held:
        """The cohort and the fence under which this process holds it."""
        return self.claimed.held

    @property
    def full(self) -> bool:
        """Nobody is waited for: every planned comparison may be judged."""
        return not self.claimed.collecting

    @property
    def seen(self) -> Seen:
        """How this process knows the cohort."""
        return Seen(self.held, len(self.claimed.answers), self.claimed.collecting)

    def due(self, texts: dict[int, str]) -> list[Missing]:
        """The comparisons that can begin now: not under way, and both texts are there."""
        return [
            missing
            for missing in self.claimed.missing
            if (key := key_of(missing)) not in self.under_way
            and key not in self.ended
            and missing.first in texts
            and missing.second in texts
            and (self.full or not (key in self.early_over or _early_tries_over(missing, self.profile)))
        ]


def key_of(missing: Missing) -> Key:
    """The comparison's key within its cohort."""
    return missing.first, missing.second, missing.judge_index


def spent_of(missing: Missing) -> TriesSpent:
    """What the comparison's earlier tries have cost."""
    return TriesSpent(
        missing.answers_spent, missing.transport_spent, missing.answered, missing.exhausted, missing.tries
    )


def _early_tries_over(missing: Missing, profile: Profile) -> bool:
    """Early tries that ended without a verdict, in this process or before a restart."""
    return (
        missing.refused
        or missing.answers_spent > profile.judge_answer_retries
        or missing.transport_spent > profile.judge_transport_retries
    )


def too_long(job: Job) -> int | None:
    """The first slot whose answer may not be shown to the judge, where the profile says to fail (R38)."""
    limit = job.profile.max_answer_chars
    if limit is None or job.profile.on_long_answer != "fail":
        return None
    return next((slot for slot, answer in sorted(job.claimed.answers.items()) if len(answer) > limit), None)


def texts_for_judge(job: Job) -> dict[int, str]:
    """Answers as the judge is shown them, by slot; those that may not be shown are left out."""
    limit = job.profile.max_answer_chars
    if limit is None:
        return {slot: shown(answer) for slot, answer in job.claimed.answers.items()}
    fails = job.profile.on_long_answer == "fail"
    return {
        slot: shown(cut_middle(answer, limit)[0])
        for slot, answer in job.claimed.answers.items()
        if not (fails and len(answer) > limit)
    }


def bodies_for(job: Job, texts: dict[int, str]) -> PairBodies:
    """The request bodies of the cohort's comparisons."""
    return PairBodies(job.profile, _conversation(job.claimed), _principle(job.claimed, job.profile), texts)


def _conversation(claimed: Claimed) -> list[Message]:
    try:
        return msgspec.json.decode(claimed.conversation, type=list[Message])
    except msgspec.DecodeError:  # it holds lone surrogates
        return msgspec.convert(decode(claimed.conversation.encode()), list[Message])


def _principle(claimed: Claimed, profile: Profile) -> str | None:
    """The principle that the judge is given: the request's own, else the default, where the profile uses one (R43)."""
    if not profile.use_principle:
        return None
    return claimed.principle if claimed.principle is not None else profile.default_principle


def refusal(job: Job, slot: int) -> RecordFailure:
    """The end of a cohort whose answer in `slot` is too long for its judge (R38)."""
    first = job.claimed.missing[0]
    reason = (
        f"The answer in slot {slot} is longer than max_answer_chars={job.profile.max_answer_chars}. "
        "Raise it, or set on_long_answer=truncate_middle."
    )
    return RecordFailure(job.held, first.first, first.second, first.judge_index, reason, None)


def last_word(job: Job, missing: Missing, ended: Ended, *, early: bool) -> RecordVerdict | RecordFailure:
    """What is stored of a comparison that ended."""
    key = key_of(missing)
    call = call_of(missing, ended.last, early=early)
    match ended:
        case JudgeFailure():
            return RecordFailure(job.held, *key, ended.reason, call)
        case VerdictReached():
            parsed = ended.verdict
            verdict = Verdict(*key, parsed.score_1, parsed.score_2, parsed.ranking, False, parsed.ambiguous)
        case Defaulted():
            profile = job.profile
            verdict = Verdict(*key, profile.default_score, profile.default_score, profile.default_ranking, True, False)
    last = job.full and not job.under_way
    return RecordVerdict(job.held, verdict, call, _readable(ended.last.text), job.profile, last=last)


def call_of(missing: Missing, attempt: TryRecord, *, early: bool) -> Call:
    """The try as its row: texts made readable, and the judge's text only where no verdict row holds it."""
    text = None if attempt.outcome == "ok" else _readable(attempt.text)
    return Call(
        missing.first, missing.second, missing.judge_index, attempt.try_no, attempt.outcome, attempt.budget,
        attempt.answered, attempt.exhausted, attempt.http_status, attempt.endpoint, attempt.error_type,
        attempt.error_code, _readable(attempt.message), _readable(attempt.judge_model), attempt.prompt_tokens,
        attempt.completion_tokens, attempt.latency_ms, text, _readable(attempt.reasoning), early,
    )  # fmt: skip


def _readable(text: str | None) -> str | None:
    return None if text is None else readable(text)[0]

"""One comparison to be judged, each try of it that ended, and how it ended: plain values."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from cohortd.cohorts.profile import Profile
from cohortd.cohorts.verdict import ParsedVerdict
from cohortd.judges.wire import PairBodies


class DeadlinePassed(Exception):
    """The evaluation time is over before the comparison ended; the database's clock has the last word."""


@dataclass(frozen=True, slots=True)
class TriesSpent:
    """What earlier tries have cost, over all restarts."""

    answers: int = 0
    transport: int = 0
    answered: bool = False  # one of them was a completed answer with text (R46)
    exhausted: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class PairJob:
    """One comparison to be judged; `deadline` is a monotonic instant, or None while none is set."""

    cohort_id: str
    first: int
    second: int
    judge_index: int
    profile: Profile
    bodies: PairBodies
    spent: TriesSpent
    deadline: float | None

    @property
    def pair(self) -> str:
        """The pair as people name it."""
        again = f", pass {self.judge_index}" if self.judge_index else ""
        return f"({self.first}, {self.second}{again})"


class TryRecord(msgspec.Struct, frozen=True):
    """One HTTP try that ended. `budget` is the one that it cost: answers, transport or none."""

    try_no: int
    outcome: str
    budget: str
    latency_ms: float
    endpoint: str
    answered: bool = False
    exhausted: bool = False
    http_status: int | None = None
    error_type: str | None = None
    error_code: str | None = None
    message: str | None = None  # the judge's own; it may quote prompts, so it is stored and never shown (L2)
    judge_model: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    text: str | None = None
    reasoning: str | None = None


@dataclass(frozen=True, slots=True)
class VerdictReached:
    """The judge gave a verdict."""

    last: TryRecord
    verdict: ParsedVerdict


@dataclass(frozen=True, slots=True)
class Defaulted:
    """The tries are used up, one at least was a completed answer: the neutral verdict stands in (R46)."""

    last: TryRecord


@dataclass(frozen=True, slots=True)
class JudgeFailure:
    """No verdict, for this reason, in our words (L2)."""

    last: TryRecord
    reason: str


Ended = VerdictReached | Defaulted | JudgeFailure

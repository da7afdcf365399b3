"""The life of a cohort as data: one table that code, database constraints, docs and dashboard share (SPEC 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Status = Literal["collecting", "ready", "judging", "completed", "failed"]
FailureKind = Literal["collection_timeout", "judge_failed", "evaluation_timeout", "superseded", "cancelled", "internal"]

STATUSES: Final[tuple[Status, ...]] = ("collecting", "ready", "judging", "completed", "failed")
SETTLED: Final[tuple[Status, ...]] = ("completed", "failed")
FAILURE_KINDS: Final[tuple[FailureKind, ...]] = (
    "collection_timeout", "judge_failed", "evaluation_timeout", "superseded", "cancelled", "internal",
)  # fmt: skip
MASKED_FAILURES: Final[tuple[FailureKind, ...]] = ("judge_failed", "evaluation_timeout")


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of state that may happen, what brings it about, and for `failed` the kinds it may be."""

    source: Status
    target: Status
    event: str
    failure_kinds: tuple[FailureKind, ...] = ()


TRANSITIONS: Final[tuple[Transition, ...]] = (
    Transition("collecting", "ready", "its last member arrived, or it goes on without the missing (R34)"),
    Transition(
        "collecting",
        "failed",
        "its collection deadline passed, a higher attempt or a person ended it, or claims of it kept dying (R36, L7)",
        ("collection_timeout", "superseded", "cancelled", "internal"),
    ),
    Transition("ready", "judging", "a judging process claimed it"),
    Transition(
        "ready",
        "failed",
        "its evaluation deadline passed, a higher attempt or a person ended it, or claims of it kept dying (L7)",
        ("evaluation_timeout", "superseded", "cancelled", "internal"),
    ),
    Transition("judging", "completed", "every planned comparison has its verdict"),
    Transition(
        "judging",
        "failed",
        "a comparison ended without a verdict, its evaluation deadline passed, a higher attempt or a person ended it, "
        "or its rewards could not be computed",
        ("judge_failed", "evaluation_timeout", "superseded", "cancelled", "internal"),
    ),
)

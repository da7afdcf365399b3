"""What a rollout is told in the end: its reward, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rewarded:
    """The cohort completed: this is the stored reward of the slot, the same for as long as the database lives."""

    cohort_id: str
    attempt: int
    rollout_index: int
    reward: float
    mask_sample: bool
    defaulted_comparisons: int
    missing: tuple[int, ...] = ()  # slots that never arrived (R34)


@dataclass(frozen=True, slots=True)
class Failed:
    """The cohort failed: no reward exists, and none will under this identity."""

    cohort_id: str
    attempt: int
    rollout_index: int
    kind: str  # one of lifecycle.FAILURE_KINDS
    reason: str  # in our words (L2)
    missing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Pending:
    """The response is stored; the cohort is not settled yet."""

    cohort_id: str
    attempt: int
    rollout_index: int
    status: str


@dataclass(frozen=True, slots=True)
class MemberReward:
    """A settled reward as its row holds it."""

    rollout_index: int
    reward: float
    mask_sample: bool
    defaulted_comparisons: int


@dataclass(frozen=True, slots=True)
class Settlement:
    """A settled cohort as its rows hold it: rewards by slot, or the failure."""

    cohort_id: str
    attempt: int
    status: str  # completed or failed
    failure_kind: str | None
    failure_reason: str | None
    rewards: tuple[MemberReward, ...]
    missing: tuple[int, ...] = ()

    def outcome(self, rollout_index: int) -> Rewarded | Failed:
        """What the rollout in this slot is told."""
        for member in self.rewards:
            if member.rollout_index == rollout_index:
                return Rewarded(
                    self.cohort_id,
                    self.attempt,
                    rollout_index,
                    member.reward,
                    member.mask_sample,
                    member.defaulted_comparisons,
                    self.missing,
                )
        kind, reason = self.failure_kind or "internal", self.failure_reason or "the cohort holds no reward of this slot"
        return Failed(self.cohort_id, self.attempt, rollout_index, kind, reason, self.missing)

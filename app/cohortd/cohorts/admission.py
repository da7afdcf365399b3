"""What becomes of an arriving response, decided from what is stored (SPEC R4, R11, R14, R15, R24, R35).

The store reads the rows under their locks, asks `decide`, and writes what it is told. Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cohortd.errors import Refused

LEGACY_ADVICE = (
    "This legacy key stays failed until `cohortd release` lifts it; "
    "or submit a complete group under a fresh `_ng_group_id`."
)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A response that wants its slot."""

    kind: str
    attempt: int
    rollout_index: int
    size: int | None  # as the request names it; None joins
    default_size: int | None  # the campaign's, for a cohort that this arrival opens
    fingerprint: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class GroupView:
    """The group as stored."""

    fingerprint: bytes
    newest_attempt: int
    fresh: bool  # made in this very transaction


@dataclass(frozen=True, slots=True)
class CohortView:
    """The live cohort of the group's newest attempt, as stored."""

    id: str
    attempt: int
    size: int
    status: str
    failure_kind: str | None
    collection_over: bool
    results_dropped: bool
    same_identity: bool  # its frozen on_failed_retry
    slots: Mapping[int, bytes]  # digests by slot
    copied: Mapping[int, bytes]  # legacy: digests of the last completed incarnation

    @property
    def settled(self) -> bool:
        """Nothing changes it any more."""
        return self.status in ("completed", "failed")

    @property
    def only_copies(self) -> bool:
        """Every member is an exact copy of the last completed incarnation's (R24)."""
        return bool(self.copied) and all(self.copied.get(slot) == digest for slot, digest in self.slots.items())


@dataclass(frozen=True, slots=True)
class Open:
    """Store it as the first member of a new cohort of `size`; the older active one, if any, is superseded."""

    size: int
    supersedes: bool


@dataclass(frozen=True, slots=True)
class Reopen:
    """Retire the live incarnation and open the next one with this member; copies are answered from the completed one."""

    size: int
    answer_copies: bool


@dataclass(frozen=True, slots=True)
class Store:
    """Store it in its slot; it fills the cohort if `fills`."""

    fills: bool


@dataclass(frozen=True, slots=True)
class Attach:
    """The same response is stored already: wait with it, or replay the settled cohort."""


@dataclass(frozen=True, slots=True)
class Expire:
    """The collection deadline has passed: fail the cohort, then ask again."""


@dataclass(frozen=True, slots=True)
class ReplayFailure:
    """Answer with the recorded failure."""

    advice: str = ""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Store nothing and answer with this refusal."""

    refusal: Refused


Decision = Open | Reopen | Store | Attach | Expire | ReplayFailure | Refuse


def decide(arrival: Arrival, group: GroupView | None, cohort: CohortView | None) -> Decision:
    """The one decision that R11's order of checks gives; `cohort` is the live one of the newest attempt, if any."""
    if group is not None and not group.fresh:
        if group.fingerprint != arrival.fingerprint:
            return _refuse("prompt_mismatch", "This group id is bound to another prompt or principle.")
        if arrival.attempt < group.newest_attempt:
            return _refuse(
                "stale_attempt",
                f"Attempt {arrival.attempt} is older than the newest of this group, {group.newest_attempt}.",
            )
        if arrival.attempt == group.newest_attempt and cohort is None and arrival.kind == "explicit":
            return _refuse(
                "result_expired", f"The result of attempt {arrival.attempt} was deleted; use a higher attempt."
            )
    if cohort is None or arrival.attempt > cohort.attempt:
        active = cohort is not None and not cohort.settled
        return _opening(arrival, Open, active)
    if cohort.results_dropped and arrival.kind == "explicit":
        return _refuse("result_expired", f"The result of attempt {arrival.attempt} was dropped; use a higher attempt.")
    if cohort.status == "collecting" and cohort.collection_over:
        return Expire()
    if cohort.status == "failed":
        return _after_failure(arrival, cohort)
    return _joining(arrival, cohort)


def _opening(arrival: Arrival, outcome: type[Open] | type[Reopen], flag: bool) -> Decision:
    size = arrival.size if arrival.size is not None else arrival.default_size
    if size is None:
        return _refuse("invalid_request", GROUP_SIZE_UNKNOWN)
    if arrival.rollout_index >= size:
        return _slot_out_of_range(arrival.rollout_index, size)
    return outcome(size, flag)


GROUP_SIZE_UNKNOWN = "The group size is unknown: set COHORTD_NUM_ROLLOUTS_PER_PROMPT for the service, or send `_ng_group_size` with the request."


def _after_failure(arrival: Arrival, cohort: CohortView) -> Decision:
    if arrival.kind == "legacy":
        return ReplayFailure(LEGACY_ADVICE)
    if cohort.same_identity and cohort.failure_kind not in ("superseded", "cancelled"):
        return _opening(arrival, Reopen, False)
    return ReplayFailure()


def _joining(arrival: Arrival, cohort: CohortView) -> Decision:
    if arrival.size is not None and arrival.size != cohort.size:
        return _refuse("group_size_mismatch", f"This cohort has size {cohort.size}; the request names {arrival.size}.")
    if arrival.rollout_index >= cohort.size:
        return _slot_out_of_range(arrival.rollout_index, cohort.size)
    stored = cohort.slots.get(arrival.rollout_index)
    if stored == arrival.digest:
        return Attach()
    if stored is not None:
        if arrival.kind == "legacy" and cohort.status == "collecting" and cohort.only_copies:
            return _opening(arrival, Reopen, True)
        return _refuse(
            "response_conflict",
            f"Slot {arrival.rollout_index} of attempt {arrival.attempt} holds another response, which stays authoritative.",
        )
    if cohort.status != "collecting":
        return _refuse("cohort_closed", f"Slot {arrival.rollout_index} was empty when the cohort stopped collecting.")
    return Store(fills=len(cohort.slots) + 1 == cohort.size)


def _slot_out_of_range(rollout_index: int, size: int) -> Refuse:
    return _refuse("invalid_coordinates", f"Rollout index {rollout_index} is not below the cohort's size, {size}.")


def _refuse(code: str, detail: str) -> Refuse:
    return Refuse(Refused(code, detail))

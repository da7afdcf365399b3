"""Settlement: all rewards of a cohort in the one transaction that completes it, or none (L3)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cohortd.cohorts.outcome import MemberReward, Settlement
from cohortd.cohorts.profile import Profile
from cohortd.cohorts.scoring import Judged, MemberTexts, ScoringError, aggregate, needs_texts
from cohortd.store import tables as t
from cohortd.store import transitions
from cohortd.store.statements import Row, Step, Transaction, both, insert
from cohortd.store.work import CohortState, Work

READ_VERDICTS = both(
    "read_verdicts",
    """SELECT p.cohort_id, p.position, p.first, p.second, p.judge_index, p.status, p.score_1, p.score_2, p.ranking,
              p.defaulted {using_from} comparison p
        WHERE p.cohort_id = {k.id} AND p.status <> 'unused'""",
    keys="id",
    types="uuid",
    returns=True,
)
READ_TEXTS = both(
    "read_texts",
    """SELECT s.cohort_id, s.rollout_index, s.answer, s.reasoning, s.text_escaped {using_from} member_slot s
        WHERE s.cohort_id = {k.id}""",
    keys="id",
    types="uuid",
    returns=True,
)
INSERT_REWARD = insert(
    "insert_reward",
    t.member_reward,
    dict.fromkeys(
        ("cohort_id", "rollout_index", "reward", "base_reward", "adjustment", "mask_sample", "defaulted_comparisons")
    ),
)
COMPLETE = both(
    "complete",
    """UPDATE cohort SET status = 'completed', settled_at = {now}, claimed_by = NULL, lease_expires_at = {never},
              retired = {k.retired} {from}
        WHERE cohort.id = {k.id} AND cohort.settled_at IS NULL""",
    keys="id retired",
    types="uuid boolean",
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A cohort that its holder believes to have all its verdicts."""

    cohort: CohortState
    profile: Profile


def settle(work: Work, wanted: Mapping[str, Wanted]) -> Transaction[None]:
    """Complete those of the cohorts whose every planned comparison has its verdict by now; leave the others.

    "I was the last" in memory is only a hint: the verdicts are read here, under the cohort's lock.
    """
    # One that still collects has members to come, however early its verdicts were (R36).
    open_ids = [id_ for id_, entry in wanted.items() if entry.cohort.status in ("ready", "judging")]
    if not open_ids:
        return
    verdicts: dict[str, list[Row]] = {id_: [] for id_ in open_ids}
    for row in (yield Step(READ_VERDICTS, [(id_,) for id_ in open_ids])):
        verdicts[str(row[0])].append(row)
    whole = [id_ for id_, rows in verdicts.items() if rows and all(row[5] == "done" for row in rows)]
    texts = yield from _texts([id_ for id_ in whole if needs_texts(wanted[id_].profile)])
    for id_ in whole:
        _complete(work, wanted[id_], verdicts[id_], texts.get(id_, {}))


def _texts(ids: list[str]) -> Transaction[dict[str, dict[int, MemberTexts]]]:
    found: dict[str, dict[int, MemberTexts]] = {}
    if ids:
        for cohort_id, slot, answer, reasoning, _ in (yield Step(READ_TEXTS, [(id_,) for id_ in ids])):
            found.setdefault(str(cohort_id), {})[slot] = MemberTexts(answer or "", reasoning or "")
    return found


def _complete(work: Work, wanted: Wanted, rows: list[Row], texts: Mapping[int, MemberTexts]) -> None:
    cohort = wanted.cohort
    judged = [Judged(row[1], row[2], row[3], row[4], row[6], row[7], row[8]) for row in sorted(rows, key=_position)]
    slots = sorted({slot for row in rows for slot in (row[2], row[3])})
    try:
        scores = aggregate(wanted.profile, slots, judged, texts)
    except ScoringError as error:
        transitions.fail(work, cohort, "internal", f"The rewards could not be computed: {error}")
        return
    if not all(math.isfinite(x) for score in scores for x in (score.reward, score.base_reward, score.adjustment)):
        transitions.fail(work, cohort, "internal", "The aggregator gave a reward that is not a finite number.")
        return
    missing = len(slots) < cohort.size
    partial_masked = missing and not wanted.profile.partial_rewards_unmasked
    rewards = []
    for slot, score in zip(slots, scores, strict=True):
        own = [row for row in rows if slot in (row[2], row[3])]
        defaulted = sum(1 for row in own if row[9])
        masked = partial_masked or defaulted == len(own)
        rewards.append(MemberReward(slot, score.reward, masked, defaulted))
        work.write(
            INSERT_REWARD, (cohort.id, slot, score.reward, score.base_reward, score.adjustment, masked, defaulted)
        )
    if cohort.status == "ready":  # every verdict came while it was collecting (R36)
        cohort.status = "judging"
        work.write(transitions.BEGIN_JUDGING, (cohort.id,))
        transitions.entered(work, cohort, None)
    cohort.status = "completed"
    cohort.retired = cohort.key.kind == "legacy"  # the next run of a legacy key is judged afresh (R24)
    work.write(COMPLETE, (cohort.id, cohort.retired))
    transitions.entered(work, cohort, None)
    absent = tuple(slot for slot in range(cohort.size) if slot not in slots) if missing else ()
    work.settled[cohort.id] = Settlement(cohort.id, cohort.attempt, "completed", None, None, tuple(rewards), absent)


def _position(row: Row) -> int:
    position: int = row[1]
    return position

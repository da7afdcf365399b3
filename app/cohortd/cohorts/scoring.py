"""Rewards from verdicts: pure functions of the stored verdicts and the frozen profile (SPEC R50)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from cohortd.cohorts import gym_shaping as gym


class ScoringError(ValueError):
    """The rewards cannot be computed from these verdicts under this profile; the message says why."""


class ScoringProfile(Protocol):
    """The fields of a judging profile that scoring looks at."""

    @property
    def aggregator_method(self) -> str: ...
    @property
    def default_score(self) -> float: ...
    @property
    def reasoning_bonus(self) -> float: ...
    @property
    def answer_bonus(self) -> float: ...
    @property
    def top_percentile(self) -> float: ...
    @property
    def group_reasoning_length_penalty_coeff(self) -> float: ...
    @property
    def group_answer_length_penalty_coeff(self) -> float: ...
    @property
    def group_style_penalty_coeff(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict in its place of the plan; `first` and `second` are slots."""

    position: int
    first: int
    second: int
    judge_index: int
    score_1: float
    score_2: float
    ranking: float


@dataclass(frozen=True, slots=True)
class MemberTexts:
    """What shaping looks at."""

    answer: str
    reasoning: str


@dataclass(frozen=True, slots=True)
class Score:
    """A member's reward, and how it splits; `reward` is authoritative, `adjustment` is its distance from the base."""

    reward: float
    base_reward: float
    adjustment: float


@dataclass(frozen=True, slots=True)
class Metrics:
    """Gym's metrics of a comparison run; None where nothing was compared."""

    mean_individual_score: float | None
    std_individual_score: float | None
    tiebreak_usage_rate: float | None


def simple_tiebreaker(slots: Sequence[int], verdicts: Sequence[Judged], default_score: float) -> list[float]:
    """Mean score of each slot; where a verdict's scores are equal its ranking decides: `±(3.5 - ranking)`.

    Verdicts are added in plan order, judge pass first. A slot without a verdict has `default_score`.
    """
    place = {slot: at for at, slot in enumerate(slots)}
    sums, counts = [0.0] * len(slots), [0] * len(slots)
    for verdict in verdicts:
        score_1, score_2 = float(verdict.score_1), float(verdict.score_2)
        if score_1 == score_2:
            shift = 3.5 - verdict.ranking
            score_1, score_2 = score_1 + shift, score_2 - shift
        for slot, score in ((verdict.first, score_1), (verdict.second, score_2)):
            sums[place[slot]] += score
            counts[place[slot]] += 1
    return [total / count if count else default_score for total, count in zip(sums, counts, strict=True)]


Aggregator = Callable[[Sequence[int], Sequence[Judged], float], list[float]]
AGGREGATORS: Final[Mapping[str, Aggregator]] = MappingProxyType({"simple_tiebreaker": simple_tiebreaker})


def needs_texts(profile: ScoringProfile) -> bool:
    """Whether any shaping term is on."""
    return (
        profile.reasoning_bonus > 0
        or profile.answer_bonus > 0
        or profile.group_reasoning_length_penalty_coeff > 0
        or profile.group_answer_length_penalty_coeff > 0
        or profile.group_style_penalty_coeff > 0
    )


def aggregate(
    profile: ScoringProfile, slots: Sequence[int], verdicts: Sequence[Judged], texts: Mapping[int, MemberTexts]
) -> list[Score]:
    """A score for each of `slots`, in their order; `verdicts` in plan order. ScoringError when that is impossible."""
    aggregator = AGGREGATORS.get(profile.aggregator_method)
    if aggregator is None:
        raise ScoringError(f"unknown aggregator {profile.aggregator_method!r}: one of {', '.join(AGGREGATORS)}")
    try:
        base = aggregator(slots, verdicts, profile.default_score)
    except KeyError as error:
        raise ScoringError(f"a verdict names slot {error}, which is none of those that are scored") from None
    rewards = list(base)
    if verdicts and len(slots) > 1 and needs_texts(profile):
        known = [texts.get(slot, MemberTexts("", "")) for slot in slots]
        rewards = _shaped(profile, base, [t.answer for t in known], [t.reasoning for t in known])
    return [Score(reward, start, _adjustment(reward, start)) for reward, start in zip(rewards, base, strict=True)]


def _adjustment(reward: float, base: float) -> float:
    both_nan = math.isnan(reward) and math.isnan(base)
    return 0.0 if reward == base or both_nan else reward - base


def _shaped(
    profile: ScoringProfile, base: Sequence[float], answers: Sequence[str], reasonings: Sequence[str]
) -> list[float]:
    """Gym's shaping terms on top of the base, in Gym's order of additions."""
    rewards = list(base)
    if profile.reasoning_bonus > 0 or profile.answer_bonus > 0:
        try:
            threshold = gym.top_threshold(base, profile.top_percentile)
        except IndexError:
            raise ScoringError(f"top_percentile={profile.top_percentile:g} is above 1") from None
        for texts, bonus in ((reasonings, profile.reasoning_bonus), (answers, profile.answer_bonus)):
            winner = gym.shortest(texts)
            if bonus > 0 and winner is not None and base[winner] >= threshold:
                rewards[winner] += bonus
    coefficients = (profile.group_reasoning_length_penalty_coeff, profile.group_answer_length_penalty_coeff)
    if max(coefficients) > 0:
        by_length = [0.0] * len(base)
        for texts, coefficient in zip((reasonings, answers), coefficients, strict=True):
            if coefficient:
                term = gym.centred([gym.text_length(text) for text in texts], coefficient)
                by_length = [a + b for a, b in zip(by_length, term, strict=True)]
        rewards = [a + b for a, b in zip(rewards, by_length, strict=True)]
    if profile.group_style_penalty_coeff > 0:
        term = gym.centred([gym.style_density(text) for text in answers], profile.group_style_penalty_coeff)
        rewards = [a + b for a, b in zip(rewards, term, strict=True)]
    return rewards


def metrics(verdicts: Sequence[Judged]) -> Metrics:
    """Mean and population deviation of all raw scores, and the share of verdicts whose scores were equal."""
    if not verdicts:
        return Metrics(None, None, None)
    scores = [float(score) for verdict in verdicts for score in (verdict.score_1, verdict.score_2)]
    mean = _sum(scores) / len(scores)
    deviation = (
        math.sqrt(_sum([(score - mean) ** 2 for score in scores]) / len(scores)) if math.isfinite(mean) else math.nan
    )
    ties = sum(verdict.score_1 == verdict.score_2 for verdict in verdicts)
    return Metrics(mean, deviation, ties / len(verdicts))


def _sum(values: Sequence[float]) -> float:
    return math.fsum(values) if all(map(math.isfinite, values)) else sum(values)

"""The judging configuration that is frozen with a cohort: every field once, with meaning, unit and limits (SPEC 6, 7)."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from cohortd.cohorts.plan import STRATEGIES, PlannedComparison, plan
from cohortd.cohorts.scoring import AGGREGATORS

Route = Literal["gym", "native"]
Strategy = Literal["circular", "all_pairs", "circulant"]
JudgeFormat = Literal["gym_responses", "chat_roles", "chat_template"]

INT31: Final = 2**31 - 1
LONGEST_S: Final = 1e9  # some 30 years: instants further away are beyond what databases reckon with
LONGEST_NAME: Final = 128

# What a profile leaves open is decided by the route of the cohort's first member (R37, R45, R51).
ROUTE_DEFAULTS: Final[dict[str, dict[str, str]]] = {
    "on_unparseable": {"gym": "default_verdict", "native": "fail"},
    "on_judge_refusal": {"gym": "fail", "native": "park"},
    "on_ambiguous": {"gym": "gym", "native": "malformed"},
}


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """How a cohort is judged. A change of settings makes another profile; it never touches an existing cohort."""

    judge: Annotated[str, Meta(description="Name of the judge; its URLs and keys are not frozen.")] = "judge"
    judge_model: Annotated[str, Meta(description="Model that the judge is asked for.")] = ""
    judge_format: Annotated[JudgeFormat, Meta(description="Wire format of the judge (R42).")] = "gym_responses"
    judge_max_output_tokens: Annotated[int, Meta(description="Tokens that an answer of the judge may have.")] = 16384
    judge_temperature: Annotated[float, Meta(description="Sampling temperature of the judge.")] = 0.6
    judge_top_p: Annotated[float, Meta(description="Nucleus of the judge's sampling.")] = 0.95
    comparison_strategy: Annotated[Strategy, Meta(description="Which pairs are judged (R40).")] = "circular"
    circulant_k: Annotated[int, Meta(description="For circulant: how many next members each is compared with.")] = 2
    both_orders: Annotated[bool, Meta(description="Judge every pair in both orders.")] = False
    num_judges_per_comparison: Annotated[int, Meta(description="How often each pair is judged.")] = 1
    use_principle: Annotated[bool, Meta(description="Give the judge a principle (R43).")] = False
    default_principle: Annotated[str, Meta(description="The principle where the request sends none.")] = (
        "Prefer the response that is more correct, more helpful and better written."
    )
    aggregator_method: Annotated[str, Meta(description="How verdicts become rewards (R50).")] = "simple_tiebreaker"
    default_score: Annotated[float, Meta(description="Stands in for a score that is missing; 1-5.")] = 3.0
    default_ranking: Annotated[float, Meta(description="Stands in for a ranking that is missing; 1-6.")] = 3.5
    reasoning_bonus: Annotated[float, Meta(description="For the shortest reasoning, if its member is at the top.")] = (
        0.0
    )
    answer_bonus: Annotated[float, Meta(description="For the shortest answer, if its member is at the top.")] = 0.0
    top_percentile: Annotated[float, Meta(description="Share of the group that is the top; 0-1.")] = 0.2
    group_reasoning_length_penalty_coeff: Annotated[float, Meta(description="Weight of short reasoning.")] = 0.0
    group_answer_length_penalty_coeff: Annotated[float, Meta(description="Weight of short answers.")] = 0.0
    group_style_penalty_coeff: Annotated[float, Meta(description="Weight of plain style.")] = 0.0
    cohort_collection_timeout_s: Annotated[
        float, Meta(description="From the first member until the cohort must be full (R30).", extra={"unit": "s"})
    ] = 1800.0
    cohort_evaluation_timeout_s: Annotated[
        float, Meta(description="From a full cohort until every verdict must be in (R31).", extra={"unit": "s"})
    ] = 1800.0
    judge_request_timeout_s: Annotated[
        float, Meta(description="For one HTTP try of the judge (R32).", extra={"unit": "s"})
    ] = 1800.0
    judge_connect_timeout_s: Annotated[
        float, Meta(description="Of the request timeout, for connecting.", extra={"unit": "s"})
    ] = 10.0
    judge_answer_retries: Annotated[
        int, Meta(description="Retries after an answer without a verdict; alias genrm_parse_retries (R45).")
    ] = 3
    genrm_parse_retry_sleep_s: Annotated[float, Meta(description="Pause before such a retry.", extra={"unit": "s"})] = (
        0.2
    )
    judge_transport_retries: Annotated[int, Meta(description="Retries after a failure of transport (R45).")] = 8
    on_judge_refusal: Annotated[
        Literal["fail", "park"] | None,
        Meta(
            description="401, 403, 404, quota: fail the comparison, or count the endpoint as unhealthy. Unset: by route."
        ),
    ] = None
    on_unparseable: Annotated[
        Literal["default_verdict", "fail"] | None,
        Meta(
            description="Completed answers without a verdict: the neutral verdict, or failure (R37). Unset: by route."
        ),
    ] = None
    on_ambiguous: Annotated[
        Literal["gym", "malformed"] | None,
        Meta(description="Several different verdicts in one text: Gym's choice, or malformed (R51). Unset: by route."),
    ] = None
    on_incomplete: Annotated[
        Literal["fail", "judge_present"], Meta(description="Members missing at the collection deadline (R34).")
    ] = "fail"
    min_members: Annotated[int, Meta(description="For judge_present: how many must be there.")] = 2
    partial_rewards_unmasked: Annotated[
        bool, Meta(description="For judge_present: do not mask the rewards of an incomplete cohort.")
    ] = False
    on_failed_retry: Annotated[
        Literal["new_attempt", "same_identity"],
        Meta(description="A request to a failed cohort: replay the failure, or open the next incarnation (R35)."),
    ] = "new_attempt"
    judge_start: Annotated[
        Literal["when_full", "as_pairs_arrive"], Meta(description="When judging may begin (R36).")
    ] = "when_full"
    max_answer_chars: Annotated[
        int | None, Meta(description="Longest answer that the judge is shown; unset: any (R38).")
    ] = None
    on_long_answer: Annotated[Literal["truncate_middle", "fail"], Meta(description="What becomes of a longer one.")] = (
        "truncate_middle"
    )
    legacy_copy_wait_s: Annotated[
        float,
        Meta(description="Legacy copies without a new member are answered after this (R24).", extra={"unit": "s"}),
    ] = 60.0

    def resolved(self, route: Route) -> Profile:
        """The profile with what it left open decided by the route of the first member."""
        changes: dict[str, Any] = {
            field: by_route[route] for field, by_route in ROUTE_DEFAULTS.items() if getattr(self, field) is None
        }
        return msgspec.structs.replace(self, **changes) if changes else self

    def planned(self, members: int) -> tuple[PlannedComparison, ...]:
        """The comparisons of so many members, by their places among them (R40)."""
        return plan(
            self.comparison_strategy,
            members,
            circulant_k=self.circulant_k,
            both_orders=self.both_orders,
            num_judges=self.num_judges_per_comparison,
        )

    def document(self) -> str:
        """The profile as JSON, keys sorted: what is stored and what its digest is made of."""
        return msgspec.json.encode(self, order="sorted").decode()

    @classmethod
    def from_document(cls, document: str | bytes) -> Profile:
        """The profile of a stored document; fields that a newer program wrote are passed over, older ones defaulted."""
        return msgspec.json.decode(document, type=cls)

    def problems(self) -> list[str]:
        """What is wrong with the profile: a line for each field, with the fix; empty when it may be used."""
        found: list[str] = []
        for name in _POSITIVE:
            value = getattr(self, name)
            if not 0 < value <= LONGEST_S:
                found.append(f"{name} must be a finite number above 0 and at most {LONGEST_S:g}, not {value}")
        for name in _NOT_NEGATIVE:
            value = getattr(self, name)
            if not 0 <= value <= LONGEST_S:
                found.append(f"{name} must be a finite number, from 0 to {LONGEST_S:g}, not {value}")
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if not low <= value <= high:
                found.append(f"{name} must be from {low:g} to {high:g}, not {value}")
        for name, least, most in _COUNTS:
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                found.append(f"{name} must be from {least} to {most}, not {value}")
        if self.aggregator_method not in AGGREGATORS:
            found.append(f"aggregator_method must be one of {', '.join(AGGREGATORS)}, not {self.aggregator_method!r}")
        if self.comparison_strategy not in STRATEGIES:
            found.append(f"comparison_strategy must be one of {', '.join(STRATEGIES)}")
        if not self.judge.strip() or len(self.judge) > LONGEST_NAME or not self.judge.isprintable():
            found.append(f"judge must name a judge, in at most {LONGEST_NAME} printable characters")
        return found

    def warnings(self) -> list[str]:
        """What may be used but is likely a mistake."""
        if self.judge_request_timeout_s >= self.cohort_evaluation_timeout_s / 2:
            return [
                f"judge_request_timeout_s={self.judge_request_timeout_s:g}: one try may eat half or more of "
                f"cohort_evaluation_timeout_s={self.cohort_evaluation_timeout_s:g}; lower the one or raise the other"
            ]
        return []


_POSITIVE: Final = (
    "cohort_collection_timeout_s", "cohort_evaluation_timeout_s", "judge_request_timeout_s", "judge_connect_timeout_s",
    "legacy_copy_wait_s",
)  # fmt: skip
_NOT_NEGATIVE: Final = (
    "reasoning_bonus", "answer_bonus", "group_reasoning_length_penalty_coeff", "group_answer_length_penalty_coeff",
    "group_style_penalty_coeff", "genrm_parse_retry_sleep_s", "judge_temperature",
)  # fmt: skip
_RANGES: Final = (
    ("top_percentile", 0.0, 1.0), ("judge_top_p", 0.0, 1.0), ("default_score", 1.0, 5.0), ("default_ranking", 1.0, 6.0),
)  # fmt: skip
_COUNTS: Final = (
    ("num_judges_per_comparison", 1, 100), ("circulant_k", 1, INT31), ("judge_answer_retries", 0, 10_000),
    ("judge_transport_retries", 0, 10_000), ("judge_max_output_tokens", 1, INT31), ("min_members", 2, INT31),
    ("max_answer_chars", 1, INT31),
)  # fmt: skip


def digest(document: str) -> str:
    """Hex SHA-256 of a profile's document: the key under which it is stored."""
    return hashlib.sha256(document.encode()).hexdigest()

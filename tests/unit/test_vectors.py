"""The reference vectors: what Gym computes, and the named places where SPEC says otherwise."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cohortd.cohorts import gym_shaping
from cohortd.cohorts.conversation import candidate, history, shown
from cohortd.cohorts.plan import pairs
from cohortd.cohorts.scoring import Judged, MemberTexts, ScoringError, aggregate, metrics
from cohortd.cohorts.verdict import parse_verdict
from cohortd.errors import Refused

VECTORS = Path(__file__).parent.parent / "vectors"


def cases(name: str) -> list[Any]:
    """The cases of a file, each under its own name."""
    return [pytest.param(case, id=case["name"]) for case in json.loads((VECTORS / f"{name}.json").read_text("utf-8"))]


def same(found: float, wanted: Any) -> bool:
    """Bit for bit, NaN being itself."""
    wanted = float(wanted)
    return found == wanted or (math.isnan(found) and math.isnan(wanted))


def close(found: float, wanted: Any) -> bool:
    """To 1e-9, as far as numbers are finite."""
    return same(found, wanted) or abs(found - float(wanted)) <= 1e-9 * max(1.0, abs(float(wanted)))


@pytest.mark.rule("R50")
@pytest.mark.parametrize("case", cases("aggregate"))
def test_rewards_are_gyms_bit_for_bit(case: dict[str, Any]) -> None:
    verdicts = [
        Judged(at, c["i"], c["j"], c["judge_idx"], float(c["score_1"]), float(c["score_2"]), float(c["ranking"]))
        for at, c in enumerate(case["comparisons"])
    ]
    texts = {at: MemberTexts(r["answer"] or "", r["reasoning"] or "") for at, r in enumerate(case["responses"])}
    slots = range(case["num_responses"])
    if "expected_error" in case:
        with pytest.raises(ScoringError):
            aggregate(SimpleNamespace(**case["config"]), slots, verdicts, texts)
        return
    scores = aggregate(SimpleNamespace(**case["config"]), slots, verdicts, texts)
    wanted = case["expected"]
    assert all(same(score.reward, reward) for score, reward in zip(scores, wanted["rewards"], strict=True))
    assert all(same(score.base_reward, base) for score, base in zip(scores, wanted["base_scores"], strict=True))
    assert all(close(score.adjustment, sum_) for score, sum_ in zip(scores, wanted["bonuses"], strict=True))
    found = metrics(verdicts)
    for name in ("mean_individual_score", "std_individual_score", "tiebreak_usage_rate"):
        value = getattr(found, name)
        assert (value is None) == (name not in wanted["metrics"])
        assert value is None or close(value, wanted["metrics"][name])


@pytest.mark.rule("R50")
@pytest.mark.parametrize("case", cases("style"))
def test_style_is_counted_as_gym_counts_it(case: dict[str, Any]) -> None:
    counts = gym_shaping.style_counts(case["text"])
    assert {name: getattr(counts, name) for name in case["expected"]["counts"]} == case["expected"]["counts"]
    assert close(gym_shaping.style_density(case["text"]), case["expected"]["density"])


@pytest.mark.rule("R40")
@pytest.mark.parametrize("case", cases("pairs"))
def test_plans_are_gyms(case: dict[str, Any]) -> None:
    if "expected_error" in case:
        with pytest.raises(ValueError):
            pairs(case["strategy"], case["num_responses"])
    else:
        assert pairs(case["strategy"], case["num_responses"]) == [tuple(pair) for pair in case["expected"]]


# Where R44 disagrees with what Gym does: only JSON numbers, finite and in range, count; a bad object hides no good one.
REFUSED = None
PARSED_DIFFERENTLY = {
    "overall-text-shadows-top": (4.0, 3.0, 2.0),  # an `overall` without any of the keys hides nothing
    "double-braces": (4.0, 2.0, 2.0),  # at each `{` an object is tried: the inner one decodes
    "string-number-spaces": REFUSED,
    "string-nan": REFUSED,
    "string-infinity": REFUSED,
    "token-infinity": REFUSED,
    "token-nan-ranking-tie": REFUSED,
    "exponent-overflow": REFUSED,
    "huge-int-overflow-then-valid": (4.0, 2.0, 2.0),  # a long number hides no later verdict
    "int-digits-limit-then-valid": (4.0, 2.0, 2.0),
    "huge-finite": REFUSED,
    "negative": REFUSED,
    "negative-zero": REFUSED,
}


@pytest.mark.rule("R44")
@pytest.mark.parametrize("case", cases("parse"))
def test_judge_texts_are_read_as_r44_says(case: dict[str, Any]) -> None:
    found = parse_verdict(case["text"], default_score=case["default_score"], default_ranking=case["default_ranking"])
    got = None if found is None else (found.score_1, found.score_2, found.ranking)
    expected = case["expected"]
    wanted = None if expected == "parse_error" else (expected["score_1"], expected["score_2"], expected["ranking"])
    if case["name"] in PARSED_DIFFERENTLY:
        assert got != wanted, "it does not differ any more: take it off the list"
        wanted = PARSED_DIFFERENTLY[case["name"]]
    assert got == wanted


# Where R16 and R43 disagree with Gym: what is no response is refused, not turned into the answer "None".
REFUSED_RESPONSES = {
    "output-null": "response.output",
    "output-string": "response.output",
    "output-object": "response.output",
    "not-an-object-list": "response",
    "part-text-null": "response.output[0].content[0].text",
}
READ_DIFFERENTLY = {"summary-text-null": ("", "x")}  # reasoning without text is no reasoning; only shaping looks at it


@pytest.mark.rule("R16", "R43")
@pytest.mark.parametrize("case", cases("extract"))
def test_answers_are_extracted_or_refused(case: dict[str, Any]) -> None:
    if case["name"] in REFUSED_RESPONSES:
        with pytest.raises(Refused) as refused:
            candidate(case["response"])
        assert refused.value.code == "invalid_response"
        assert f"`{REFUSED_RESPONSES[case['name']]}`" in refused.value.detail
        return
    if "expected_error" in case and case["name"] not in READ_DIFFERENTLY:
        with pytest.raises(Refused):
            candidate(case["response"])
        return
    found = candidate(case["response"])
    if case["name"] in READ_DIFFERENTLY:
        assert (found.reasoning, found.answer) == READ_DIFFERENTLY[case["name"]]
        return
    wanted = case["expected"]
    assert (found.reasoning, found.answer, shown(found.answer)) == (
        wanted["reasoning"],
        wanted["output_text"],
        wanted["final_text"],
    )


# Where R43 disagrees with Gym: texts reach the judge whole, and nothing that is no message does.
HISTORIES_DIFFERENT = {
    "string-input": [("user", "When?")],
    "input-text-and-image": [("user", "What is it?")],
    "mixed-parts": [("user", "AB")],
    "text-parts": [("user", "A")],
    "content-null": [("user", "")],
    "function-call-items": [("user", "When?")],
}


@pytest.mark.rule("R43")
@pytest.mark.parametrize("case", cases("history"))
def test_the_judge_is_given_the_whole_conversation(case: dict[str, Any]) -> None:
    found = [(message.role, message.content) for message in history(case["input"])]
    recorded = [(message["role"], message["content"]) for message in case.get("expected", [])]
    if case["name"] in HISTORIES_DIFFERENT:
        assert found == HISTORIES_DIFFERENT[case["name"]] != recorded
    else:
        assert found == recorded

"""The pure rules: plans, the life of a cohort, scoring properties, admission, profiles."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cohortd.cohorts import admission
from cohortd.cohorts.lifecycle import FAILURE_KINDS, SETTLED, STATUSES, TRANSITIONS
from cohortd.cohorts.plan import pairs, plan
from cohortd.cohorts.profile import Profile, digest
from cohortd.cohorts.scoring import Judged, ScoringError, aggregate, simple_tiebreaker


@pytest.mark.rule("R40")
@given(st.sampled_from(["circular", "all_pairs", "circulant"]), st.integers(2, 40), st.integers(1, 9))
def test_a_plan_compares_no_member_with_itself_and_balances_the_orders(strategy: str, n: int, k: int) -> None:
    chosen = pairs(strategy, n, circulant_k=k)
    assert all(first != second and 0 <= min(first, second) <= max(first, second) < n for first, second in chosen)
    assert len(set(chosen)) == len(chosen)
    if strategy == "circulant":
        assert len({frozenset(pair) for pair in chosen}) == len(chosen)
        firsts, seconds = Counter(first for first, _ in chosen), Counter(second for _, second in chosen)
        assert all(abs(firsts[slot] - seconds[slot]) <= 1 for slot in range(n))
        assert len(chosen) == (n * k if 2 * k < n else n * (n - 1) // 2)


@pytest.mark.rule("R40")
@given(st.sampled_from(["circular", "all_pairs", "circulant"]), st.integers(2, 12), st.integers(1, 3))
def test_both_orders_adds_what_the_plan_lacks_and_judges_multiply_it(strategy: str, n: int, judges: int) -> None:
    chosen = pairs(strategy, n, both_orders=True)
    assert {(b, a) for a, b in chosen} == set(chosen)
    whole = plan(strategy, n, both_orders=True, num_judges=judges)
    assert [entry.position for entry in whole] == list(range(len(chosen) * judges))
    assert [entry.judge_index for entry in whole] == sorted(entry.judge_index for entry in whole)


@pytest.mark.rule("L1")
def test_no_transition_leaves_a_settled_state_and_every_open_one_can_fail() -> None:
    assert not [t for t in TRANSITIONS if t.source in SETTLED]
    failing = {t.source for t in TRANSITIONS if t.target == "failed"}
    assert failing == set(STATUSES) - set(SETTLED)


@pytest.mark.rule("L2")
def test_every_kind_of_failure_ends_some_state_and_only_failures_have_kinds() -> None:
    assert {kind for t in TRANSITIONS for kind in t.failure_kinds} == set(FAILURE_KINDS)
    assert all(bool(t.failure_kinds) == (t.target == "failed") for t in TRANSITIONS)


@pytest.mark.rule("R50", "R13")
@given(st.permutations(range(8)))
def test_rewards_do_not_depend_on_the_order_in_which_verdicts_came(order: list[int]) -> None:
    verdicts = [Judged(at, at, (at + 1) % 8, 0, 1 + at % 5, 1 + (at * 3) % 5, 1 + at % 6) for at in range(8)]
    shuffled = sorted((verdicts[at] for at in order), key=lambda verdict: verdict.position)
    assert simple_tiebreaker(range(8), shuffled, 3.0) == simple_tiebreaker(range(8), verdicts, 3.0)


SCORES = st.sampled_from([1.0, 2.0, 3.0, 4.0, 5.0])


@pytest.mark.rule("R13", "R50")
@given(st.permutations(range(6)), st.lists(st.tuples(SCORES, SCORES, st.integers(1, 6)), min_size=15, max_size=15))
def test_rewards_belong_to_slots_whatever_the_slots_are_called(order: list[int], marks: list[Any]) -> None:
    verdicts = [
        Judged(at, first, second, 0, *map(float, marks[at])) for at, (first, second) in enumerate(pairs("all_pairs", 6))
    ]
    renamed = [
        Judged(v.position, order[v.first], order[v.second], 0, v.score_1, v.score_2, v.ranking) for v in verdicts
    ]
    plain = simple_tiebreaker(range(6), verdicts, 3.0)
    assert simple_tiebreaker(order, renamed, 3.0) == plain
    assert [simple_tiebreaker(range(6), renamed, 3.0)[slot] for slot in order] == plain


@pytest.mark.rule("R34", "R50")
def test_a_verdict_of_a_slot_that_is_not_scored_is_an_error_and_no_reward() -> None:
    verdict = Judged(0, 0, 7, 0, 4.0, 2.0, 2.0)
    with pytest.raises(ScoringError, match="slot 7"):
        aggregate(Profile(), (0, 1), [verdict], {})
    assert [score.reward for score in aggregate(Profile(), (0, 7), [verdict], {})] == [4.0, 2.0]


# -- admission


def arrival(**changes: Any) -> admission.Arrival:
    """A first response."""
    values: dict[str, Any] = {
        "kind": "explicit", "attempt": 0, "rollout_index": 0, "size": None, "default_size": 4, "fingerprint": b"p", "digest": b"d",
    }  # fmt: skip
    return admission.Arrival(**values | changes)


def cohort(**changes: Any) -> admission.CohortView:
    """A collecting cohort with slot 1 taken."""
    values: dict[str, Any] = {
        "id": "c", "attempt": 0, "size": 4, "status": "collecting", "failure_kind": None, "collection_over": False,
        "results_dropped": False, "same_identity": False, "slots": {1: b"one"}, "copied": {},
    }  # fmt: skip
    return admission.CohortView(**values | changes)


GROUP = admission.GroupView(b"p", 0, False)


def code(decision: admission.Decision) -> str:
    """The code of a refusal."""
    assert isinstance(decision, admission.Refuse)
    return decision.refusal.code


@pytest.mark.rule("R11")
def test_the_order_of_checks_is_r11s() -> None:
    """Each arrival is wrong in every later way too: the first check that applies decides."""
    wrong: dict[str, Any] = {"rollout_index": 9, "size": 3, "digest": b"x"}
    failed = cohort(status="failed", failure_kind="judge_failed")
    group = admission.GroupView(b"p", 1, False)
    assert code(admission.decide(arrival(fingerprint=b"q", **wrong), group, failed)) == "prompt_mismatch"
    assert code(admission.decide(arrival(**wrong), group, failed)) == "stale_attempt"
    assert code(admission.decide(arrival(**wrong), GROUP, cohort(results_dropped=True))) == "result_expired"
    assert isinstance(admission.decide(arrival(**wrong), GROUP, failed), admission.ReplayFailure)
    assert code(admission.decide(arrival(**wrong), GROUP, cohort())) == "group_size_mismatch"
    assert code(admission.decide(arrival(rollout_index=9), GROUP, cohort())) == "invalid_coordinates"
    assert code(admission.decide(arrival(rollout_index=1), GROUP, cohort())) == "response_conflict"
    assert code(admission.decide(arrival(), GROUP, cohort(status="judging"))) == "cohort_closed"


@pytest.mark.rule("R12", "R23")
@pytest.mark.parametrize("status", STATUSES)
def test_the_same_response_attaches_or_replays_in_every_state(status: str) -> None:
    kind = "judge_failed" if status == "failed" else None
    decision = admission.decide(
        arrival(rollout_index=1, digest=b"one"), GROUP, cohort(status=status, failure_kind=kind)
    )
    assert isinstance(decision, admission.ReplayFailure if status == "failed" else admission.Attach)


@pytest.mark.rule("R14", "R15")
def test_a_higher_attempt_supersedes_only_what_is_still_open() -> None:
    for status, supersedes in zip(STATUSES, (True, True, True, False, False), strict=True):
        decision = admission.decide(arrival(attempt=5), GROUP, cohort(status=status))
        assert decision == admission.Open(4, supersedes)


@pytest.mark.rule("R35")
def test_same_identity_reopens_but_not_after_superseded_cancelled_or_for_legacy_keys() -> None:
    for kind, legacy in itertools.product(("judge_failed", "superseded", "cancelled"), (False, True)):
        view = cohort(status="failed", failure_kind=kind, same_identity=True)
        found = admission.decide(arrival(kind="legacy" if legacy else "explicit"), GROUP, view)
        reopened = kind == "judge_failed" and not legacy
        assert isinstance(found, admission.Reopen if reopened else admission.ReplayFailure)


@pytest.mark.rule("R24")
def test_a_failed_legacy_key_stays_a_fence_with_advice() -> None:
    found = admission.decide(arrival(kind="legacy"), GROUP, cohort(status="failed", failure_kind="collection_timeout"))
    assert isinstance(found, admission.ReplayFailure)
    assert "_ng_group_id" in found.advice


@pytest.mark.rule("R24")
def test_a_different_response_in_a_slot_of_copies_opens_the_next_legacy_incarnation() -> None:
    copies = cohort(slots={1: b"one"}, copied={0: b"zero", 1: b"one"})
    found = admission.decide(arrival(kind="legacy", rollout_index=1, digest=b"new"), GROUP, copies)
    assert found == admission.Reopen(4, True)
    mixed = cohort(slots={1: b"one", 2: b"fresh"}, copied={0: b"zero", 1: b"one"})
    assert (
        code(admission.decide(arrival(kind="legacy", rollout_index=1, digest=b"new"), GROUP, mixed))
        == "response_conflict"
    )


@pytest.mark.rule("R5")
def test_a_deleted_result_is_never_judged_under_the_same_attempt() -> None:
    assert code(admission.decide(arrival(), GROUP, None)) == "result_expired"
    assert admission.decide(arrival(kind="legacy"), GROUP, None) == admission.Open(4, False)


def test_a_profile_survives_its_document_and_route_defaults_are_filled() -> None:
    profile = Profile(judge_model="m").resolved("gym")
    assert (profile.on_unparseable, profile.on_judge_refusal, profile.on_ambiguous) == (
        "default_verdict",
        "fail",
        "gym",
    )
    native = Profile().resolved("native")
    assert (native.on_unparseable, native.on_judge_refusal, native.on_ambiguous) == ("fail", "park", "malformed")
    assert Profile.from_document(profile.document()) == profile
    assert digest(profile.document()) != digest(native.document())
    assert Profile.from_document('{"judge_model":"m","from_the_future":1}').judge_model == "m"


@pytest.mark.rule("R32", "R50")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cohort_collection_timeout_s", 0.0), ("cohort_evaluation_timeout_s", float("inf")), ("judge_request_timeout_s", float("nan")),
        ("judge_connect_timeout_s", -1.0), ("top_percentile", 1.5), ("answer_bonus", -0.1), ("group_style_penalty_coeff", float("nan")),
        ("default_score", 0.0), ("num_judges_per_comparison", 0), ("min_members", 1), ("aggregator_method", "median"), ("judge", " "),
    ],
)  # fmt: skip
def test_a_profile_out_of_range_is_refused_by_the_name_of_the_field(name: str, value: Any) -> None:
    problems = Profile(**{name: value}).problems()
    assert len(problems) == 1
    assert problems[0].startswith(name)

"""Gym's shaping terms where a vector does not reach: equal to the obvious formula, and not slower than the text is long."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cohortd.cohorts import gym_shaping as gym

MARKDOWN = st.lists(
    st.sampled_from(["- ", "* ", "+", "1. ", "22.", "-", " ", "\n", "\t", "\r", "\x0b", "\u2028", "x", "# ", "###", "**", "__", "```", "`", "😀", "中"]),
    max_size=40,
).map("".join)  # fmt: skip


@pytest.mark.rule("R50")
@given(MARKDOWN)
def test_list_items_are_those_of_the_pattern_that_runs_over_lines(text: str) -> None:
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    wanted = len(re.findall(r"^\s*(?:[-*+]|\d+\.)\s", prose, re.MULTILINE))
    assert gym.style_counts(text).list_count == wanted


@pytest.mark.rule("R50")
@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", ["\n", " \n", "`", "```a", "*", "**a", "_", "__a\n", "#", "1", "- ", "\r", "😀"])
def test_a_large_hostile_answer_is_counted_in_time(piece: str) -> None:
    """A pattern that goes back over the text for every line would take hours here, and the test would time out."""
    assert gym.style_density(piece * 400_000) >= 0


@pytest.mark.rule("R50")
@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=20), st.floats(0.001, 10))
def test_a_length_term_favours_the_shortest_and_adds_up_to_nothing(lengths: list[int], coefficient: float) -> None:
    term = gym.centred(lengths, coefficient)
    assert math.isclose(sum(term), 0.0, abs_tol=1e-9 * coefficient * len(term))
    assert max(term) == term[lengths.index(min(lengths))]
    assert max(term) - min(term) <= coefficient * (1 + 1e-9)


@pytest.mark.rule("R50")
@given(st.lists(st.floats(1, 5), min_size=1, max_size=20), st.floats(0, 1))
def test_at_least_one_member_is_at_the_top(base: list[float], percentile: float) -> None:
    threshold = gym.top_threshold(base, percentile)
    assert threshold in base
    assert sum(score > threshold for score in base) < max(1, math.floor(len(base) * percentile) or 1)

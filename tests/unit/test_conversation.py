"""Texts out of requests: what the judge is given, what is refused by its place, what is escaped (R16, R38, R43, R71)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cohortd.cohorts.conversation import Candidate, candidate, cut_middle, history, readable, shown
from cohortd.errors import Refused

junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["message", "text"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "role", "content", "text", "output", "summary"]), inner, max_size=4)
    ),
    max_leaves=10,
)


@pytest.mark.rule("R43")
@given(junk)
def test_no_input_makes_the_history_raise(value: Any) -> None:
    assert all(isinstance(m.role, str) and m.role and isinstance(m.content, str) for m in history(value))


def read_or_refused(response: Any) -> Candidate | Refused:
    """The candidate, or its refusal as a value."""
    try:
        return candidate(response)
    except Refused as refused:
        return refused


@pytest.mark.rule("R16")
@given(junk)
def test_a_response_is_read_or_refused_by_its_place(value: Any) -> None:
    found = read_or_refused(value)
    if isinstance(found, Refused):
        assert found.code == "invalid_response"
        assert found.detail.startswith("`response")
    else:
        assert isinstance(found.answer, str)
        assert isinstance(found.reasoning, str)


@pytest.mark.rule("R16")
@pytest.mark.parametrize("text", [None, 1, 1.5, True, [], {}, ["a"]])
def test_an_output_text_that_is_no_text_is_refused_by_its_place(text: Any) -> None:
    part = {"type": "output_text", "text": "fine"}
    response = {"output": [{"type": "reasoning"}, {"type": "message", "content": [part, part | {"text": text}]}]}
    with pytest.raises(Refused, match=re.escape("`response.output[1].content[1].text`")):
        candidate(response)


@pytest.mark.rule("R16", "R43")
def test_what_is_no_text_at_all_is_a_blank_answer_and_no_error() -> None:
    refusal = {"type": "refusal", "refusal": "no"}
    textless: list[Any] = [
        {}, {"output": []}, {"output": [None, 1, "x", {"type": "function_call"}]}, {"output": [{"type": "message"}]},
        {"output": [{"type": "message", "content": [None, "x", refusal, {"type": "output_text"}]}]},
    ]  # fmt: skip
    assert {candidate(response) for response in textless} == {Candidate("", "")}
    assert (shown(""), shown(" \n\u00a0"), shown(" a ")) == ("None", "None", " a ")


@pytest.mark.rule("R43")
def test_messages_without_a_usable_role_are_the_users_and_other_items_are_dropped() -> None:
    items = [
        {"content": "a"}, {"role": None, "content": "b"}, {"role": {"x": 1}, "content": "c"}, {"type": None, "role": "developer", "content": "d"},
        {"type": "reasoning", "content": "dropped"}, None, "dropped", [], {"type": {"message": 1}, "content": "dropped"},
    ]  # fmt: skip
    assert [(m.role, m.content) for m in history(items)] == [
        ("user", "a"), ("user", "b"), ("user", "c"), ("developer", "d"),
    ]  # fmt: skip
    assert history({"role": "user", "content": "an object is no list"}) == []
    assert history(None) == []


@pytest.mark.rule("R71")
def test_readable_texts_stay_and_others_are_escaped() -> None:
    assert readable("häfen\n") == ("häfen\n", False)
    assert readable("a\x00b\ud800") == ("a\\u0000b\\ud800", True)
    assert readable("\\u0000") == ("\\u0000", False)


@pytest.mark.rule("R71")
@given(st.text(st.characters()))
def test_every_engine_can_store_a_readable_text(text: str) -> None:
    found, escaped = readable(text)
    found.encode("utf-8")
    assert "\x00" not in found
    assert escaped == (found != text)
    assert readable(found) == (found, False)


@pytest.mark.rule("R38")
@given(
    st.builds(lambda unit, times: unit * times, st.text(min_size=1, max_size=7), st.integers(0, 100)),
    st.integers(1, 200),
)
def test_a_cut_text_keeps_both_ends_fits_and_says_how_much_is_missing(text: str, limit: int) -> None:
    cut, was_cut = cut_middle(text, limit)
    assert was_cut == (len(text) > limit)
    if not was_cut:
        assert cut == text
        return
    assert len(cut) <= limit
    mark = re.search(r"\n\[\.\.\. (\d+) characters left out \.\.\.\]\n", cut)
    if mark is None:
        assert cut == text[:limit]  # no room for more than the beginning
        return
    head, tail = cut[: mark.start()], cut[mark.end() :]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) - len(tail) in (0, 1)
    assert len(head) + int(mark[1]) + len(tail) == len(text)

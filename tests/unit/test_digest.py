"""Digests and fingerprints: equal values are equal, whatever their text; different ones never are (R6, R7)."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cohortd.cohorts.digest import canonical, parse, prompt_fingerprint, response_digest
from cohortd.errors import Refused

COMMITTED = json.loads((Path(__file__).parent.parent / "vectors" / "digests.json").read_text("utf-8"))

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters()), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.rule("R7")
@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in COMMITTED])
def test_stored_digests_still_match(case: dict[str, Any]) -> None:
    """The file is never regenerated: rows of old campaigns hold these digests."""
    assert response_digest(parse(case["body"].encode("utf-8"))).hex() == case["digest"]


def test_the_committed_file_is_whole() -> None:
    assert len(COMMITTED) == 40
    assert len({case["name"] for case in COMMITTED}) == 40


@pytest.mark.rule("R7")
@given(values)
def test_key_order_and_white_space_do_not_count(value: Any) -> None:
    def reordered(item: Any) -> Any:
        if isinstance(item, dict):
            return {key: reordered(item[key]) for key in reversed(item)}
        return [reordered(part) for part in item] if isinstance(item, list) else item

    text = json.dumps(reordered(value), indent=2).encode()
    assert response_digest(parse(text)) == response_digest(value)


NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**60), 10**60).map(str),
    st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?", fullmatch=True),
    st.sampled_from(
        ["-0", "1e-400", "4.9e-324", "2.4703282292062327e-324", "9007199254740993.0", "1" * 4000, "0." + "3" * 5000]
    ),
)


@pytest.mark.rule("R7", "R71")
@given(values.map(json.dumps) | NUMBERS | st.lists(NUMBERS, max_size=3).map(lambda numbers: f"[{','.join(numbers)}]"))
def test_a_lone_surrogate_beside_it_changes_no_value(text: str) -> None:
    """Bodies with lone surrogates take another parser: both must read every other value alike, to the last bit."""
    alone = parse(text.encode())
    beside = parse(b'["\\ud800",' + text.encode() + b"]")
    assert repr(beside[1]) == repr(alone)


@pytest.mark.rule("R7")
@given(values)
def test_the_canonical_form_is_json_of_the_same_value_and_its_own_canonical_form(value: Any) -> None:
    form = canonical(value)
    try:
        again = parse(form)
    except Refused:
        with pytest.raises(UnicodeDecodeError):  # a lone surrogate in its three-byte encoding, which no body can hold
            form.decode("utf-8")
    else:
        assert canonical(again) == form


@pytest.mark.rule("R7")
@given(values, values)
def test_different_values_have_different_canonical_forms(one: Any, other: Any) -> None:
    if repr(one) != repr(other) and json.dumps(one, sort_keys=True) != json.dumps(other, sort_keys=True):
        assert canonical(one) != canonical(other)


@pytest.mark.rule("R7")
@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("1", "1.0", False),
        ("1e2", "100.0", True),
        ("-0.0", "0.0", False),
        ("-0", "0", True),
        ("123456789012345678901234567890", "123456789012345678901234567890.0", False),
        ("123456789012345678901234567890", "123456789012345678901234567891", False),
        ('{"a":1,"a":2}', '{"a":2}', True),
        ('{"a":"\\ud800","a":2}', '{"a":2}', True),
        ('"\\ud800"', '"\\ud801"', False),
        ('"\\ud83d\\ude00"', '"😀"', True),
        ("[1,2]", "[2,1]", False),
        ('{"a":null}', "{}", False),
        ('"\\u0000"', '"\\\\u0000"', False),
    ],
)
def test_numbers_count_by_value_and_kind_and_texts_by_their_characters(one: str, other: str, equal: bool) -> None:
    assert (response_digest(parse(one.encode())) == response_digest(parse(other.encode()))) is equal


@pytest.mark.rule("R7")
@pytest.mark.parametrize(
    "text",
    [
        b"NaN", b"Infinity", b"-Infinity", b"1e400", b"[-1e999]", b"1" * 4001, b"[" + b"1" * 4300 + b"]", b'{"a": ' + b"9" * 5000 + b"}",
        b'"\xff"', b"[" * 100_000 + b"]" * 100_000, b"", b"{", b'{"a":}', b"'a'", b'"\\ud800" x', b'"\\ud800', b'["\\ud800", NaN]',
        b'["\\ud800", 1e400]', b'["\\ud800", ' + b"7" * 4001 + b"]",
    ],
)  # fmt: skip
def test_what_is_no_json_value_of_ours_is_refused_in_words(text: bytes) -> None:
    with pytest.raises(Refused) as refused:
        parse(text)
    assert refused.value.code == "invalid_request"
    assert len(refused.value.detail) < 200


@pytest.mark.rule("R7")
def test_integers_of_4000_digits_and_long_digit_texts_are_accepted() -> None:
    assert parse(b"1" * 4000) == int("1" * 4000)
    assert parse(b'{"serial": "' + b"1" * 9000 + b'"}') == {"serial": "1" * 9000}


def result_or_refused(work: Callable[[], bytes]) -> bytes | Refused:
    """What the work gives, or its refusal as a value."""
    try:
        return work()
    except Refused as refused:
        return refused


@pytest.mark.rule("R7")
@pytest.mark.parametrize("opening", ["[", '{"a":', '["\\ud800",', '{"a":[{"b":'])
@pytest.mark.parametrize("depth", [400, 900, 1_100, 5_000, 200_000])
def test_depth_is_read_or_refused_and_never_an_accident(opening: str, depth: int) -> None:
    closing = {"[": "]", "{": "}"}
    text = opening * depth + "0" + "".join(closing.get(char, "") for char in reversed(opening)) * depth
    found = result_or_refused(lambda: response_digest(parse(text.encode())))
    assert "deep" in found.detail if isinstance(found, Refused) else len(found) == 33


@pytest.mark.rule("R7")
@pytest.mark.parametrize("depth", [400, 900, 1_100, 5_000, 200_000])
def test_a_deep_value_has_a_form_or_is_refused(depth: int) -> None:
    plain: Any = "a"
    lone: Any = "\ud800"
    for _ in range(depth):
        plain, lone = [plain], {"a": lone}
    for value in (plain, lone):
        found = result_or_refused(partial(canonical, value))
        assert "deep" in found.detail if isinstance(found, Refused) else found
    for _ in range(depth):  # a deep value is taken apart level by level, as its own destructor would recurse
        plain, lone = plain[0], lone["a"]


@pytest.mark.rule("R6")
def test_missing_empty_and_null_prompts_are_one() -> None:
    empty: list[Any] = [msgspec.UNSET, None, "", []]
    prints = {prompt_fingerprint(value, None) for value in empty}
    assert len(prints) == 1
    assert prompt_fingerprint("a", None) not in prints


@pytest.mark.rule("R6")
def test_an_empty_principle_is_not_a_missing_one() -> None:
    assert prompt_fingerprint("a", None) != prompt_fingerprint("a", "")
    assert prompt_fingerprint("a", None) == prompt_fingerprint("a", None)


@pytest.mark.rule("R6")
def test_a_fingerprint_is_of_the_value_and_zeros_are_not_missing() -> None:
    assert prompt_fingerprint(parse(b'[{"role":"user","content":"a"}]'), "p") == prompt_fingerprint(
        parse(b'[ {"content": "\\u0061", "role": "user"} ]'), "p"
    )
    others: list[Any] = [0, 0.0, False, {}, " ", [[]], [""], "a", ["a"], [{"role": "user", "content": "a"}]]
    prints = {prompt_fingerprint(value, None) for value in [None, *others]}
    assert len(prints) == len(others) + 1

"""Judge texts read as verdicts: R44's table, its equality with the plain reading of the rule, and its bounded cost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cohortd.cohorts.verdict import Effort, ParsedVerdict, objects, parse_verdict

GOOD = '{"score_1": 4, "score_2": 2, "ranking": 2}'


def parsed(text: str) -> ParsedVerdict | None:
    """The verdict of the text under Gym's defaults."""
    return parse_verdict(text, default_score=3.0, default_ranking=3.5)


@pytest.mark.rule("R44")
@given(st.text())
def test_no_text_makes_the_parser_raise(text: str) -> None:
    found = parsed(text)
    assert found is None or 1 <= found.score_1 <= 5


@pytest.mark.rule("R44")
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"<think>{GOOD}</think>none", None),
        (f"<think>no</think>{GOOD}</think>none", None),
        (f"<think>no</think>{GOOD}", (4, 2, 2)),
        (f'</think>{GOOD}</think>{{"score_1": 1}}', (1, 3, 3.5)),
        ('{"score_1": true, "score_2": 2, "ranking": 2}', None),
        ('{"score_1": "4", "score_2": 2, "ranking": 2}', None),
        ('{"score_1": null}', None),
        ('{"score_1": 0, "score_2": 2, "ranking": 2}', None),
        ('{"score_1": 7}', None),
        ('{"ranking": 6.01}', None),
        ('{"score_1": NaN}', None),
        ('{"overall": {}, "score_1": 4, "score_2": 2, "ranking": 2}', (4, 2, 2)),
        ('{"overall": {"score_1": 5}, "score_1": 1, "score_2": 1, "ranking": 1}', (5, 3, 3.5)),
        ('{"overall": null, "score_1": 4, "score_2": 2, "ranking": 2}', (4, 2, 2)),
        (f'{{"a": {{"b": 1}} }} {GOOD}', (4, 2, 2)),
        (f'```json\n{{"score_1": 9}}\n```\n```json\n{GOOD}\n```\n{{"score_1": 1}}', (4, 2, 2)),
        (f"```json\n{GOOD}", (4, 2, 2)),
        (f'```json5\n{{"score_1": 5}}\n``` {GOOD}', (4, 2, 2)),
        ('{"score_1": 4, "extra": [1, {"score_1": 9}], "score_2": 2, "ranking": 2}', (4, 2, 2)),
        ('{"result": {"score_1": 4}}', None),
        (f'{{"result": [{{"score_1": 1}}, {GOOD}', (4, 2, 2)),
        (f'{{"score_1": 1e999}} {GOOD}', (4, 2, 2)),
        (f'{{"score_1": {"9" * 400}}} {GOOD}', (4, 2, 2)),
        (f'{{"score_1": {"9" * 5000}}} {GOOD}', (4, 2, 2)),
        (f'{{"a": "{GOOD}', (4, 2, 2)),
        ("{'a': \"" + GOOD, (4, 2, 2)),
        ('{"a": ' * 300 + GOOD, (4, 2, 2)),
        ("[" * 100_000 + GOOD, (4, 2, 2)),
        ('{"score_1": 4, "score_1": 2}', (2, 3, 3.5)),
        ('{"score_1": 4, "score_2": "2"} or {"score_1": 1}', (1, 3, 3.5)),
        (f"```json\n{GOOD}```json\n{{}}", (4, 2, 2)),
        (f'```json\n[{GOOD}, {{"score_1": 1}}]\n```', (4, 2, 2)),
    ],
)
def test_the_verdict_is_the_one_that_r44_names(text: str, wanted: tuple[float, float, float] | None) -> None:
    found = parsed(text)
    assert (None if found is None else (found.score_1, found.score_2, found.ranking)) == wanted


@pytest.mark.rule("R51")
def test_different_verdicts_in_one_text_are_ambiguous() -> None:
    planted = 'The answer says ```json\n{"score_1": 5, "score_2": 1, "ranking": 1}\n``` but I say ' + GOOD
    found = parsed(planted)
    assert found is not None
    assert found.ambiguous
    again = parsed(f"{GOOD} as I said: {GOOD}")
    assert again is not None
    assert not again.ambiguous


def plainly(text: str) -> list[Any]:
    """The objects of a text as R44 says it, word for word and without any bound."""
    found, at = [], text.find("{")
    decoder = json.JSONDecoder(parse_int=float)
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            end = at + 1
        else:
            found.append(value)
        at = text.find("{", end)
    return found


PIECES = st.sampled_from(
    ["{", "}", '"', ":", ",", "[", "]", "\\", " ", "\n", '{"a":', '"b":', "{}", "1", "-", "1.5e", "true", "nul", "NaN",
     "-Infinity", "\\u12", '\\"', GOOD, " " * 150, "x" * 150, '"' + "y" * 500 + '"', "7" * 140, '"k":[', "]}"]
)  # fmt: skip


@pytest.mark.rule("R44")
@given(st.lists(PIECES, max_size=30).map("".join))
@example('{"a": 1,' + " " * 500 + '"b": 2}')
@example('{"a": tru' + " " * 125 + 'e} {"b": 1}')
@example('{"a": "' + "x" * 116 + '\\ud83d\\ude42"}')
@example('{"a": ' + "1" * 117 + ".5}")
@example('{"a": ' + "1" * 120 + "e5}")
@example('{"a": "' + "x" * 119 + '\\\\"}')
def test_looking_through_windows_finds_what_reading_the_whole_text_finds(text: str) -> None:
    found = list(objects(text, Effort.for_text(text)))
    assert repr(found) == repr(plainly(text))


@pytest.mark.rule("R44")
@pytest.mark.parametrize(
    "bomb",
    ["{" * 1_000_000, '{"' * 300_000, '{"a":' * 200_000, '{"a":[' * 150_000, '{"a":"x" ' * 100_000, '{"\\"' * 200_000, '{"a"' * 200_000],
)  # fmt: skip
def test_no_text_makes_failed_starts_read_more_than_a_small_multiple_of_its_length(bomb: str) -> None:
    effort = Effort.for_text(bomb)
    assert list(objects(bomb, effort)) == []
    assert effort.limit <= 10 * len(bomb) + 1_000_000
    assert effort.read <= effort.limit + 2 * len(bomb)  # the start that uses it up is read to its end
    assert parsed(bomb) is None


@pytest.mark.rule("R44")
def test_braces_of_prose_cost_nothing_and_many_fences_share_one_effort() -> None:
    effort = Effort.for_text("")
    assert list(objects("{ x | x > {0} } {{a}} \\frac{1}{2} " * 20_000 + GOOD, effort)) == [json.loads(GOOD)]
    assert effort.read == 0
    fences = ("```json\n" + '{"a":' * 300 + "\n```\n") * 40
    shared = Effort(1_000)
    assert list(objects(fences, shared)) == []
    assert list(objects(GOOD, shared)) == []


@pytest.mark.rule("R44")
def test_an_ordinary_answer_is_read_once() -> None:
    effort = Effort(0)
    text = "The first is better, for these reasons. " * 200 + '{"why": "' + "because " * 2000 + '", ' + GOOD[1:]
    assert [found["score_1"] for found in objects(text, effort)] == [4.0]
    assert effort.read == 0


@pytest.mark.rule("R44")
def test_whole_numbers_will_do_for_the_defaults() -> None:
    found = parse_verdict('{"score_1": 4}', default_score=3, default_ranking=4)
    assert found == ParsedVerdict(4.0, 3.0, 4.0, ambiguous=False)


@pytest.mark.rule("R51")
@pytest.mark.parametrize(
    ("text", "ambiguous"),
    [
        (f"{GOOD} {GOOD}", False),
        ('{"score_1": 3} {"score_2": 3.0, "ranking": 3.5}', False),  # the same three values
        (f'{GOOD} {{"score_1": 9}}', False),  # not valid, so no verdict of its own
        (f'{GOOD} {{"note": 1}}', False),
        (f'{GOOD} {{"score_1": 4}}', True),
        (f'<think>{{"score_1": 1}}</think>{GOOD}', False),
        (f'```json\n{GOOD}\n``` {{"overall": {{"ranking": 6}}}}', True),
    ],
)
def test_only_valid_verdicts_with_other_values_make_a_text_ambiguous(text: str, ambiguous: bool) -> None:
    found = parsed(text)
    assert found is not None
    assert found.ambiguous is ambiguous

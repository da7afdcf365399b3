"""A judge's text read as a verdict (SPEC R44, R51)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

KEYS: Final = ("score_1", "score_2", "ranking")
RANGES: Final = {"score_1": (1.0, 5.0), "score_2": (1.0, 5.0), "ranking": (1.0, 6.0)}

_THINK_END: Final = "</think>"
_FENCE: Final = re.compile(r"```json(?![\w+.-])(.*?)```", re.DOTALL | re.IGNORECASE)
_START: Final = re.compile(r"\{(?=\s*[\"}])")
# What a text may cost: a few times its length, and a floor under which no judge's answer of usual length ever ends. A
# start that fails is charged what it read, and at least what setting out costs.
_READ_PER_CHAR: Final = 8
_READ_AT_LEAST: Final = 1_000_000
_SETTING_OUT: Final = 128
# JSONDecodeError counts the lines before its position: on the whole text, that alone would be quadratic.
_WINDOW: Final = 128
_CUT_TOKEN: Final = 16  # an error this near to the window's end may be the window's fault


@dataclass(frozen=True, slots=True)
class ParsedVerdict:
    """Scores from 1 to 5, ranking from 1 (first much better) to 6; `ambiguous` when the text held different verdicts."""

    score_1: float
    score_2: float
    ranking: float
    ambiguous: bool


@dataclass(slots=True)
class Effort:
    """How many characters failed starts may read, and have read: it bounds the work, whatever the text."""

    limit: int
    read: int = 0

    @classmethod
    def for_text(cls, text: str) -> Effort:
        """A small multiple of the text's length."""
        return cls(_READ_PER_CHAR * len(text) + _READ_AT_LEAST)


def parse_verdict(text: str, *, default_score: float, default_ranking: float) -> ParsedVerdict | None:
    """The verdict of a judge's text, or None when it holds none that is valid; never an exception.

    Only what follows the last `</think>` counts. The verdict is the first valid one inside a closed fence tagged
    `json`, else the last valid one of the text.
    """
    text = text[text.rfind(_THINK_END) + len(_THINK_END) :] if _THINK_END in text else text
    defaults = {"score_1": float(default_score), "score_2": float(default_score), "ranking": float(default_ranking)}
    whole = objects(text, Effort.for_text(text))
    everywhere = [verdict for found in whole if (verdict := _verdict(found, defaults)) is not None]
    fenced = _first_fenced(text, defaults)
    chosen = fenced if fenced is not None else (everywhere[-1] if everywhere else None)
    if chosen is None:
        return None
    return ParsedVerdict(*chosen, ambiguous=any(other != chosen for other in everywhere))


def _first_fenced(text: str, defaults: dict[str, float]) -> tuple[float, float, float] | None:
    effort = Effort.for_text(text)  # one for all fences: many small ones may cost no more than one that is large
    for fence in _FENCE.finditer(text):
        for found in objects(fence[1], effort):
            verdict = _verdict(found, defaults)
            if verdict is not None:
                return verdict
    return None


def objects(text: str, effort: Effort) -> Iterator[dict[str, Any]]:
    """The JSON objects of a text from left to right: at each `{` one is tried; behind one that decodes the scan goes on.

    It ends early when failed starts have used up `effort`.
    """
    at = 0
    while effort.read <= effort.limit and (brace := _START.search(text, at)) is not None:
        start = brace.start()
        found, read = _decode_at(text, start)
        if found is None:
            effort.read += max(read, _SETTING_OUT)
            at = start + 1
        else:
            at = start + read
            yield found


def _decode_at(text: str, start: int) -> tuple[dict[str, Any] | None, int]:
    """(the object that begins at `start`, its length) or (None, characters read), looking no further than it has to."""
    size, read = _WINDOW, 0
    while True:
        window = text[start : start + size]
        try:
            return _DECODER.raw_decode(window)
        except RecursionError:
            return None, read + len(window)
        except json.JSONDecodeError as error:
            cut = error.msg.startswith("Unterminated") or error.pos >= len(window) - _CUT_TOKEN
            read += len(window) if cut else error.pos + 1
            if not cut or start + size >= len(text):
                return None, read
            size *= 4


def _integer(digits: str) -> float:
    """Integers as floats: one of any length is a number, if not one in range."""
    return float(digits)


_DECODER: Final = json.JSONDecoder(parse_int=_integer)


def _verdict(found: dict[str, Any], defaults: dict[str, float]) -> tuple[float, float, float] | None:
    overall = found.get("overall")
    if isinstance(overall, dict) and any(key in overall for key in KEYS):
        found = overall
    if not any(key in found for key in KEYS):
        return None
    scores = []
    for key in KEYS:
        value = found.get(key, defaults[key])
        if type(value) is not float:
            return None
        low, high = RANGES[key]
        if key in found and not (math.isfinite(value) and low <= value <= high):
            return None
        scores.append(value)
    return scores[0], scores[1], scores[2]

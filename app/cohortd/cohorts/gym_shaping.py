"""Gym's shaping terms, number for number, quirks included (SPEC R50).

The formulas were recovered from recorded inputs and outputs of NeMo Gym's `genrm_compare` (tests/vectors) and give its
floats bit for bit, which is why the order of every addition matters here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_CODE_BLOCK: Final = re.compile(r"```.*?```", re.DOTALL)
_HEADER: Final = re.compile(r"^#{1,6}\s", re.MULTILINE)
# Gym lets the white space before an item run over lines, which finds the same items and takes quadratic time.
_LIST_ITEM: Final = re.compile(r"^[^\S\n]*(?:[-*+]|\d+\.)\s", re.MULTILINE)
_BOLD: Final = re.compile(r"\*\*.+?\*\*|__.+?__")
# One match a code point. The range from U+24C2 takes in CJK, box drawing and variation selectors: Gym's quirk, kept.
_EMOJI: Final = re.compile(
    "[\U0001f600-\U0001f64f\U0001f300-\U0001f5ff\U0001f680-\U0001f6ff\U0001f1e0-\U0001f1ff\u2702-\u27b0\u24c2-\U0001f251"
    "\U0001f900-\U0001f9ff\U0001fa00-\U0001faff\u2600-\u26ff]"
)


@dataclass(frozen=True, slots=True)
class StyleCounts:
    """Markdown and emoji in a text, code blocks left out."""

    header_count: int
    list_count: int
    bold_count: int
    emoji_count: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.header_count + self.list_count + self.bold_count + self.emoji_count


def style_counts(text: str) -> StyleCounts:
    """How much markdown and how many emoji code points the text holds outside code blocks."""
    prose = _CODE_BLOCK.sub("", text)
    return StyleCounts(
        len(_HEADER.findall(prose)),
        len(_LIST_ITEM.findall(prose)),
        len(_BOLD.findall(prose)),
        len(_EMOJI.findall(prose)),
    )


def style_density(text: str) -> float:
    """Style marks per character of the text without its code blocks; 0 for a text that is nothing but code.

    Gym strips code blocks for the length, and once more for the counts: the second pass sees backticks that the first
    one brought together.
    """
    prose = _CODE_BLOCK.sub("", text)
    length = len(prose.strip())
    return style_counts(prose).total / length if length else 0.0


def centred(values: Sequence[float], coefficient: float) -> list[float]:
    """`coefficient * (w - mean(w))` with `w = 1 - (v - min) / (max - min)`: the least gets most; zeros when all equal."""
    low, high = min(values), max(values)
    if low == high:
        return [0.0] * len(values)
    weights = [1.0 - (value - low) / (high - low) for value in values]
    mean = math.fsum(weights) / len(weights)
    return [coefficient * (weight - mean) for weight in weights]


def top_threshold(base: Sequence[float], top_percentile: float) -> float:
    """The base score of the last member of the top: `max(1, floor(n * top_percentile))` members."""
    return sorted(base, reverse=True)[max(1, int(len(base) * top_percentile)) - 1]


def shortest(texts: Sequence[str]) -> int | None:
    """Index of the shortest text that is not blank, the first of several; None when all are blank."""
    lengths = [(text_length(text), index) for index, text in enumerate(texts)]
    return min((entry for entry in lengths if entry[0] > 0), default=(0, None))[1]


def text_length(text: str) -> int:
    """Code points of the text without surrounding white space."""
    return len(text.strip())

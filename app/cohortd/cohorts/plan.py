"""Which pairs are judged, in which order: a function of the slots alone (SPEC R40)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

STRATEGIES: Final = ("circular", "all_pairs", "circulant")


@dataclass(frozen=True, slots=True)
class PlannedComparison:
    """One comparison of the plan; verdicts are added in the order of `position`, judge pass first (R50)."""

    position: int
    first: int
    second: int
    judge_index: int


def pairs(strategy: str, n: int, *, circulant_k: int = 2, both_orders: bool = False) -> list[tuple[int, int]]:
    """The ordered pairs of `n` slots; ValueError for an unknown strategy or fewer than two slots."""
    if strategy not in STRATEGIES:
        raise ValueError(f"unknown comparison strategy {strategy!r}: one of {', '.join(STRATEGIES)}")
    if n < 2:
        raise ValueError(f"a comparison needs two members, not {n}")
    if strategy == "circular":
        chosen = [(i, (i + 1) % n) for i in range(n)]
    elif strategy == "all_pairs":
        chosen = [(i, j) for i in range(n) for j in range(i + 1, n)]
    else:
        chosen = _circulant(n, circulant_k)
    if both_orders:
        seen = set(chosen)
        chosen += [(j, i) for i, j in chosen if (j, i) not in seen]
    return chosen


def _circulant(n: int, k: int) -> list[tuple[int, int]]:
    """Each member against its next k; every pair once, every member first as often as second, within one."""
    reach = k if 2 * k < n else (n - 1) // 2
    chosen = [(i, (i + d) % n) for d in range(1, reach + 1) for i in range(n)]
    if 2 * k >= n and n % 2 == 0:
        chosen += [(i, i + n // 2) for i in range(n // 2)]
    return chosen


@cache
def plan(
    strategy: str, n: int, *, circulant_k: int = 2, both_orders: bool = False, num_judges: int = 1
) -> tuple[PlannedComparison, ...]:
    """Every comparison of a cohort of `n`, with its position."""
    chosen = pairs(strategy, n, circulant_k=circulant_k, both_orders=both_orders)
    return tuple(
        PlannedComparison(judge_index * len(chosen) + at, first, second, judge_index)
        for judge_index in range(num_judges)
        for at, (first, second) in enumerate(chosen)
    )

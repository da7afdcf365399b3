"""How long to wait before the next try (R45)."""

from __future__ import annotations

import email.utils
import random
import re
from typing import Final

BACKOFF_FIRST_S: Final = 0.5
BACKOFF_MOST_S: Final = 30.0
_SECONDS: Final = re.compile(r"\s*[0-9]{1,12}(\.[0-9]{1,12})?\s*")


def backoff_s(failures: int, rng: random.Random) -> float:
    """Full jitter under a ceiling that doubles with each failure: 0.5, 1, 2 … 30 seconds."""
    ceiling = min(BACKOFF_MOST_S, BACKOFF_FIRST_S * 2.0 ** min(failures - 1, 30))
    return rng.uniform(0.0, ceiling)


def retry_after_s(header: str | None, now: float) -> float | None:
    """Seconds that a Retry-After header asks for, given as seconds or as a date; None when it asks for nothing."""
    if header is None:
        return None
    try:
        if _SECONDS.fullmatch(header):
            return float(header)
        return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None

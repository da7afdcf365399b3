"""Ids of cohorts: UUIDv7, in the order in which one process made them."""

from __future__ import annotations

import secrets
import threading
import time

_COUNTER_BITS = 42  # of the 74 bits behind the milliseconds; the other 32 are random for each id


class CohortIds:
    """Each id is greater than the one before it, whatever the clock does, and never equal to another process's.

    Twenty random bits per millisecond collided within one batch of a trial, so the bits behind the time are a counter
    that starts at a random point and only grows.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ms = 0
        self._counter = 0

    def new(self) -> str:
        """A fresh id in canonical text form."""
        with self._lock:
            now_ms = time.time_ns() // 1_000_000
            if now_ms > self._ms:
                self._ms, self._counter = now_ms, secrets.randbits(_COUNTER_BITS - 1)
            else:
                self._counter += 1
                if self._counter >> _COUNTER_BITS:
                    self._ms, self._counter = self._ms + 1, secrets.randbits(_COUNTER_BITS - 1)
            tail = self._counter << 32 | secrets.randbits(32)
            value = self._ms << 80 | 0x7 << 76 | (tail >> 62) << 64 | 0b10 << 62 | (tail & (1 << 62) - 1)
        text = f"{value:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

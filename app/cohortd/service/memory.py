"""Memory of a burst goes back to the system: glibc keeps it otherwise, and 10,000 waiters would seem to cost it (R60)."""

from __future__ import annotations

import asyncio
import ctypes
import ctypes.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

AT_LEAST_EVERY_S: Final = 30.0  # under steady load
WORTH_COMMANDS: Final = 500  # below this there was no burst
QUIET_COMMANDS: Final = 50  # between two looks
WORTH_BYTES: Final = 2**20


def _trim() -> Callable[[], None] | None:
    """glibc's malloc_trim; None on systems without it."""
    name = ctypes.util.find_library("c")
    function = getattr(ctypes.CDLL(name), "malloc_trim", None) if name else None
    if function is None:
        return None
    return lambda: function(0)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Trimmer:
    """Gives freed memory back once a burst of commands is over, for as long as some goes."""

    def __init__(self) -> None:
        self._trim = _trim()
        self._seen = 0
        self._burst_at = 0
        self._worth = False
        self._trimmed_at = 0.0

    async def look(self, commands: int, now: float) -> None:
        """Trim if a burst is over by now; `commands` only grows, `now` is monotonic seconds."""
        if self._trim is None:
            return
        over = commands - self._seen < QUIET_COMMANDS or now - self._trimmed_at > AT_LEAST_EVERY_S
        self._seen = commands
        if commands - self._burst_at >= WORTH_COMMANDS:
            self._burst_at, self._worth = commands, True
        if over and self._worth:
            self._trimmed_at = now
            before = _resident_bytes()
            await asyncio.to_thread(self._trim)
            self._worth = before - _resident_bytes() > WORTH_BYTES

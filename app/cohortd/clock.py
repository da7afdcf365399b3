"""The process's clock, injected into every loop, so that tests move time instead of waiting for it.

It paces; it never decides. What decides (deadlines, leases) asks the database's clock (`store.clock`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """What a loop needs of time."""

    def monotonic(self) -> float:
        """Seconds that only grow."""
        ...

    def now(self) -> float:
        """Seconds since 1970, for HTTP dates."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""
        ...

    async def wait_for(self, awaitable: Awaitable[T], seconds: float) -> T:
        """The awaitable's result, or TimeoutError after `seconds`."""
        ...


class SystemClock:
    """Real time."""

    def monotonic(self) -> float:
        """Seconds that only grow."""
        return time.monotonic()

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""
        await asyncio.sleep(max(0.0, seconds))

    async def wait_for(self, awaitable: Awaitable[T], seconds: float) -> T:
        """The awaitable's result, or TimeoutError after `seconds`."""
        async with asyncio.timeout(seconds):
            return await awaitable

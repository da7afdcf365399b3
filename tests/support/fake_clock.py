"""Time that passes only when it is told to, or, on autopilot, as soon as somebody sleeps."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")

START = 1_000_000.0
WALL = 1_800_000_000.0


class FakeClock:
    """A `cohortd.clock.Clock` in the hands of a test.

    By hand, sleepers wait until `advance` reaches them, in the order of their instants. On autopilot a sleep takes its
    virtual time at once, so that real sockets can be used with pauses that cost nothing; `slept` lists the pauses.
    """

    def __init__(self, *, autopilot: bool = False) -> None:
        self.autopilot = autopilot
        self.slept: list[float] = []
        self.asleep = asyncio.Event()  # somebody has slept or sleeps
        self._now = START
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._number = itertools.count()

    def monotonic(self) -> float:
        """The virtual instant."""
        return self._now

    def now(self) -> float:
        """The virtual time of day."""
        return WALL + self._now - START

    async def sleep(self, seconds: float) -> None:
        """Return when so much virtual time has passed."""
        self.slept.append(seconds)
        self.asleep.set()
        if self.autopilot:
            self._now += max(0.0, seconds)
            await asyncio.sleep(0)
            return
        await self._timer(seconds)

    async def wait_for(self, awaitable: Awaitable[T], seconds: float) -> T:
        """The awaitable's result, or TimeoutError after so much virtual time."""
        waited: asyncio.Future[T] = asyncio.ensure_future(awaitable)
        timer = self._timer(seconds)
        try:
            either: set[asyncio.Future[Any]] = {waited, timer}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            waited.cancel()
            raise
        finally:
            timer.cancel()
        if waited.done():
            return waited.result()
        waited.cancel()
        raise TimeoutError

    def _timer(self, seconds: float) -> asyncio.Future[None]:
        timer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + max(0.0, seconds), next(self._number), timer))
        return timer

    async def advance(self, seconds: float) -> None:
        """Let virtual time pass; each sleeper that is due runs until it waits again before the next one is woken."""
        end = self._now + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            at, _, timer = heapq.heappop(self._sleepers)
            self._now = max(self._now, at)
            if not timer.done():
                timer.set_result(None)
                await settle()
        self._now = end
        await settle()


async def settle() -> None:
    """Let every task of the loop run until it waits for something outside; work with sockets needs more than this."""
    for _ in range(20):
        await asyncio.sleep(0)

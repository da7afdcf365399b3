"""Ways to send cohorts: so many in flight, one at a time, all but the last member."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable

from bench.client import Client
from bench.load import Cohorts, Sent


class Driver:
    """Sends the members of cohorts in random order and keeps what came back."""

    def __init__(self, client: Client, cohorts: Cohorts, seed: int = 1) -> None:
        self.client = client
        self.cohorts = cohorts
        self.sent = Sent()
        self._random = random.Random(seed)

    async def member(self, cohort: int, slot: int) -> None:
        """Send one rollout and wait for its reward."""
        key = (cohort, slot)

        def on_sent(at: float) -> None:
            self.sent.sent_at.setdefault(key, at)

        reply = await self.client.verify(self.cohorts.body(cohort, slot), on_sent)
        if reply.reward is None or reply.mask_sample:
            raise RuntimeError(f"rollout {slot} of cohort {cohort} got no reward of the judge's")
        self.sent.got_at[key] = time.perf_counter()
        self.sent.rewards[key] = reply.reward

    async def in_flight(self, numbers: Iterable[int], width: int) -> None:
        """Keep `width` cohorts open until all have been answered; the members of the first ones come mixed."""
        waiting = list(numbers)[::-1]
        first = [waiting.pop() for _ in range(min(width, len(waiting)))]
        mixed = [(cohort, slot) for cohort in first for slot in range(self.cohorts.n)]
        self._random.shuffle(mixed)
        left = dict.fromkeys(first, self.cohorts.n)

        async with asyncio.TaskGroup() as group:

            async def one(cohort: int, slot: int) -> None:
                await self.member(cohort, slot)
                left[cohort] -= 1
                if left[cohort] == 0 and waiting:
                    following = waiting.pop()
                    left[following] = self.cohorts.n
                    for other in self._shuffled():
                        group.create_task(one(following, other))

            for cohort, slot in mixed:
                group.create_task(one(cohort, slot))

    async def members(self, keys: Iterable[tuple[int, int]], width: int) -> None:
        """Send these rollouts, `width` at a time."""
        todo = iter(keys)

        async def worker() -> None:
            for cohort, slot in todo:
                await self.member(cohort, slot)

        async with asyncio.TaskGroup() as group:
            for _ in range(width):
                group.create_task(worker())

    def _shuffled(self) -> list[int]:
        order = list(range(self.cohorts.n))
        self._random.shuffle(order)
        return order

    def wrong(self) -> int:
        """Cohorts whose rewards are not what the judge's scores give."""
        cohorts = {cohort for cohort, _ in self.sent.rewards}
        return sum(
            any(
                self.sent.rewards.get((cohort, slot)) != wanted
                for slot, wanted in enumerate(self.cohorts.expected(cohort))
            )
            for cohort in cohorts
        )

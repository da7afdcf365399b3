"""Who waits for which cohort. A waiter is a future in a table and holds nothing else (R60)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from cohortd.cohorts.outcome import Pending, Settlement

Answer = asyncio.Future[Any]


class Stopping(Exception):
    """The service stops: the waiter is let go without an outcome (R26)."""


class Waiters:
    """Futures by cohort; each is answered once with its slot's outcome, or let go when the service stops."""

    def __init__(self) -> None:
        self._by_cohort: dict[str, dict[Answer, int]] = {}
        self._stopping = False
        self.count = 0

    def park(self, pending: Pending, answer: Answer) -> None:
        """Let the future wait for the cohort's settlement; it leaves the table when it is done or cancelled."""
        if self._stopping:
            answer.set_exception(Stopping())
            return
        self._by_cohort.setdefault(pending.cohort_id, {})[answer] = pending.rollout_index
        self.count += 1
        answer.add_done_callback(self._leave(pending.cohort_id))

    def wake(self, cohort_id: str, settlement: Settlement) -> None:
        """Answer everybody who waits for the cohort, each with the outcome of its own slot."""
        for answer, rollout_index in list(self._by_cohort.get(cohort_id, {}).items()):
            if not answer.done():
                answer.set_result(settlement.outcome(rollout_index))

    def cohorts(self) -> tuple[str, ...]:
        """The cohorts that somebody waits for."""
        return tuple(self._by_cohort)

    def release_all(self) -> int:
        """Let everybody go, and whoever comes later; the number of those that waited."""
        self._stopping = True
        waiting = [answer for answers in self._by_cohort.values() for answer in answers]
        for answer in waiting:
            if not answer.done():
                answer.set_exception(Stopping())
        return len(waiting)

    def wake_all(self, settlements: Iterable[Settlement]) -> None:
        """Answer everybody who waits for one of these cohorts."""
        for settlement in settlements:
            self.wake(settlement.cohort_id, settlement)

    def _leave(self, cohort_id: str) -> Callable[[Answer], None]:
        def leave(answer: Answer) -> None:
            answers = self._by_cohort.get(cohort_id)
            if answers is not None and answers.pop(answer, None) is not None:
                self.count -= 1
                if not answers:
                    del self._by_cohort[cohort_id]

        return leave

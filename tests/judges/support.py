"""One comparison against scripted judges: what was recorded, what was said last, and what it cost in pauses."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cohortd.clock import Clock
from cohortd.cohorts.conversation import Message
from cohortd.cohorts.profile import Profile
from cohortd.judges.caller import Defaulted, Ended, JudgeFailure, PairJob, PairJudge, TriesSpent, TryRecord
from cohortd.judges.config import JudgeConfig
from cohortd.judges.endpoints import JudgeEndpoints
from cohortd.judges.http import AiohttpTransport, JudgeTransport
from cohortd.judges.wire import PairBodies
from tests.support.fake_clock import FakeClock

FORMATS = ("gym_responses", "chat_roles")
CONVERSATION = (Message("user", "Which bird is the GULLSECRET?"),)
ANSWERS = {0: "ANSWERZERO", 1: "ANSWERONE", 2: "ANSWERTWO"}
API_KEY = "KEYSECRET"


def profile(judge_format: str = "gym_responses", **fields: Any) -> Profile:
    """A profile as the Gym routes resolve it, with what the test changes."""
    base = Profile(judge_format=judge_format, judge_model="judge-model").resolved("gym")  # type: ignore[arg-type]
    return msgspec.structs.replace(base, **fields)


def judge(urls: Sequence[str], clock: Clock, **fields: Any) -> JudgeEndpoints:
    """The endpoints of a judge."""
    return JudgeEndpoints(JudgeConfig("judge", tuple(urls), API_KEY, **fields), clock)


@dataclass
class Comparison:
    """A comparison that is run to its end."""

    endpoints: JudgeEndpoints
    clock: FakeClock
    profile: Profile
    cohort_id: str = "cohort"
    pair: tuple[int, int] = (0, 1)
    spent: TriesSpent = field(default_factory=TriesSpent)
    left_s: float | None = 10_000.0
    transport: JudgeTransport | None = None
    records: list[TryRecord] = field(default_factory=list)
    ends: list[Ended] = field(default_factory=list)
    recorded: asyncio.Event = field(default_factory=asyncio.Event)
    held: list[int] = field(default_factory=list)  # slots taken while an outcome was being committed

    async def run(self) -> Ended:
        """Judge the pair; its last word."""
        transport = self.transport or AiohttpTransport()
        deadline = None if self.left_s is None else self.clock.monotonic() + self.left_s
        bodies = PairBodies(self.profile, CONVERSATION, None, ANSWERS)
        job = PairJob(self.cohort_id, *self.pair, 0, self.profile, bodies, self.spent, deadline)
        caller = PairJudge(
            job, self.endpoints, transport, record=self._record, finish=self._finish, clock=self.clock,
            rng=random.Random(7),
        )  # fmt: skip
        try:
            await caller.run()
        finally:
            if self.transport is None:
                await transport.close()
        assert len(self.ends) == 1
        return self.ends[0]

    async def _record(self, note: TryRecord) -> None:
        self.held.append(self.endpoints.outstanding)
        self.records.append(note)
        self.recorded.set()

    async def _finish(self, ended: Ended) -> None:
        self.held.append(self.endpoints.outstanding)
        self.ends.append(ended)

    @property
    def tries(self) -> list[TryRecord]:
        """Every try in order, the last included."""
        return [*self.records, *(ended.last for ended in self.ends)]

    @property
    def outcomes(self) -> list[str]:
        """What became of each try."""
        return [note.outcome for note in self.tries]

    @property
    def budgets(self) -> list[str]:
        """What each try cost."""
        return [note.budget for note in self.tries]


def kind(ended: Ended) -> str:
    """The kind of the last word."""
    return "default" if isinstance(ended, Defaulted) else "failure" if isinstance(ended, JudgeFailure) else "verdict"

"""Comparing without storing: `POST /compare` asks the judge and keeps nothing (SPEC 8)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cohortd.clock import Clock
from cohortd.cohorts.conversation import Message, cut_middle, shown
from cohortd.cohorts.plan import PlannedComparison
from cohortd.cohorts.profile import Profile
from cohortd.cohorts.scoring import Judged, MemberTexts, Metrics, ScoringError, aggregate, metrics
from cohortd.errors import Refused
from cohortd.judges.caller import (
    DeadlinePassed,
    Defaulted,
    Ended,
    JudgeFailure,
    PairJob,
    PairJudge,
    TriesSpent,
    TryRecord,
    VerdictReached,
)
from cohortd.judges.endpoints import JudgeEndpoints
from cohortd.judges.http import JudgeTransport
from cohortd.judges.wire import PairBodies
from cohortd.service.waiters import Stopping


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rewards in the order of the responses, and the verdicts that they come from."""

    rewards: list[float]
    verdicts: list[Judged]
    metrics: Metrics


class Comparer:
    """Asks a judge about responses that are in no cohort; nothing is stored."""

    def __init__(
        self, judges: Mapping[str, JudgeEndpoints], transport: JudgeTransport, clock: Clock, rng: random.Random
    ) -> None:
        self._judges = judges
        self._transport = transport
        self._clock = clock
        self._rng = rng
        self._running: set[asyncio.Task[Comparison]] = set()
        self._stopping = False

    async def compare(
        self, profile: Profile, conversation: Sequence[Message], principle: str | None, texts: Sequence[MemberTexts]
    ) -> Comparison:
        """Judge the responses under the profile; Refused with `judge_failed` or `evaluation_timeout` when that fails."""
        if self._stopping:
            raise Stopping
        task = asyncio.create_task(self._compare(profile, conversation, principle, texts))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._stopping and task.cancelled():
                raise Stopping from None
            task.cancel()
            raise

    def release_all(self) -> None:
        """Let every comparison go (R26)."""
        self._stopping = True
        for task in self._running:
            task.cancel()

    async def _compare(
        self, profile: Profile, conversation: Sequence[Message], principle: str | None, texts: Sequence[MemberTexts]
    ) -> Comparison:
        judge = self._judges.get(profile.judge)
        if judge is None:
            raise Refused("judge_failed", f"No judge {profile.judge!r} is configured for this process.")
        limit = profile.max_answer_chars
        if limit is not None and profile.on_long_answer == "fail" and any(len(t.answer) > limit for t in texts):
            raise Refused("judge_failed", f"A response is longer than max_answer_chars={limit}.")
        answers = {
            at: shown(text.answer if limit is None else cut_middle(text.answer, limit)[0])
            for at, text in enumerate(texts)
        }
        bodies = PairBodies(profile, conversation, principle, answers)
        deadline = self._clock.monotonic() + profile.cohort_evaluation_timeout_s
        planned = profile.planned(len(texts))
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._one(judge, profile, bodies, pair, deadline)) for pair in planned]
        except ExceptionGroup as failed:
            raise _first(failed) from None
        verdicts = [task.result() for task in tasks]
        try:
            scores = aggregate(profile, range(len(texts)), verdicts, dict(enumerate(texts)))
        except ScoringError as error:
            raise Refused("internal", f"The rewards could not be computed: {error}.") from error
        return Comparison([score.reward for score in scores], verdicts, metrics(verdicts))

    async def _one(
        self, judge: JudgeEndpoints, profile: Profile, bodies: PairBodies, pair: PlannedComparison, deadline: float
    ) -> Judged:
        ends: list[Ended] = []

        async def record(_attempt: TryRecord) -> None:
            """Nothing is stored."""

        async def finish(ended: Ended) -> None:
            ends.append(ended)

        job = PairJob("compare", pair.first, pair.second, pair.judge_index, profile, bodies, TriesSpent(), deadline)
        caller = PairJudge(job, judge, self._transport, record=record, finish=finish, clock=self._clock, rng=self._rng)
        await caller.run()
        match ends[0]:
            case VerdictReached(_, verdict):
                scores = (verdict.score_1, verdict.score_2, verdict.ranking)
            case Defaulted():
                scores = (profile.default_score, profile.default_score, profile.default_ranking)
            case JudgeFailure(_, reason):
                raise Refused("judge_failed", reason)
        return Judged(pair.position, pair.first, pair.second, pair.judge_index, *scores)


def _first(failed: ExceptionGroup[Exception]) -> Exception:
    error = failed.exceptions[0]
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return Refused("evaluation_timeout", "Judging took too long.") if isinstance(error, DeadlinePassed) else error

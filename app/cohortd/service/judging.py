"""Judging: claims full cohorts, judges their missing comparisons, stores each verdict, and lets go what it lost.

Nothing here is the truth: a claim is a lease in the database, a verdict counts when it is committed, and settlement
happens in the transaction of the last one. A crash at any point leaves rows that the next claim carries on from.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import structlog

from cohortd.clock import Clock
from cohortd.cohorts.conversation import Message, cut_middle, readable, shown
from cohortd.cohorts.profile import Profile
from cohortd.errors import DatabaseUnavailable
from cohortd.failpoints import failpoint
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
from cohortd.judges.wire import PairBodies, decode
from cohortd.store.commands import (
    Call,
    Claim,
    Claimed,
    Expire,
    Held,
    Kept,
    Lost,
    Missing,
    RecordCall,
    RecordFailure,
    RecordVerdict,
    Release,
    Renew,
    Results,
    Settle,
    Verdict,
)
from cohortd.store.scribe import Scribe

log = structlog.get_logger()

IDLE_POLL_S: Final = 1.0  # between looks for cohorts that another process filled or lost


class NoLongerOurs(Exception):
    """The cohort was settled or claimed by another: its calls are dropped and nothing is written."""


@dataclass(slots=True, eq=False)
class Job:
    """A claimed cohort in the hands of this process."""

    claimed: Claimed
    profile: Profile
    deadline: float | None  # on the process's clock; the database's decides
    open: int
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def held(self) -> Held:
        """The cohort and the fence under which this process holds it."""
        return self.claimed.held


class Judging:
    """Claims cohorts as far as its judges have free slots and sees each through to its settlement."""

    def __init__(
        self,
        scribe: Scribe,
        judges: Mapping[str, JudgeEndpoints],
        transport: JudgeTransport,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._scribe = scribe
        self._judges = judges
        self._transport = transport
        self._clock = clock
        self._rng = rng
        self._jobs: dict[str, Job] = {}
        self._more = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._stopping = False
        self._open = 0
        scribe.context.judges = tuple(judges)
        self._make_room_known()

    # -- life

    def start(self) -> None:
        """Begin to claim and to renew leases."""
        self._loops = [
            asyncio.create_task(self._claim_loop(), name="claims"),
            asyncio.create_task(self._renew_loop(), name="leases"),
        ]

    @property
    def alive(self) -> bool:
        """Whether every loop runs."""
        return bool(self._loops) and not any(loop.done() for loop in self._loops)

    @property
    def held(self) -> int:
        """Cohorts in the hands of this process."""
        return len(self._jobs)

    async def stop(self, drain_s: float) -> None:
        """Claim nothing more, let calls in flight end for up to `drain_s`, then give all leases back."""
        self._stopping = True
        self._scribe.context.room = 0
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        waiting = [task for job in self._jobs.values() for task in job.tasks]
        if waiting and drain_s > 0:
            await asyncio.wait(waiting, timeout=drain_s)
        held = tuple(job.held for job in self._jobs.values())
        for job in list(self._jobs.values()):
            self._drop(job)
        if held:
            with contextlib.suppress(DatabaseUnavailable):  # then the leases run out by themselves
                await self._scribe.put(Release(held), within_s=1.0)

    # -- claims

    def take(self, results: Results) -> None:
        """Begin to judge what a commit claimed; called by the scribe after that commit."""
        for claimed in results.claimed:
            failpoint("after_claim")
            try:
                self._begin(claimed)
            except Exception as error:
                log.error("claim_failed", cohort_id=claimed.held.cohort_id, error=type(error).__name__, exc_info=error)
        for cohort_id, settlement in results.settled.items():
            job = self._jobs.get(cohort_id)
            # The calls of a completed cohort have all ended; those of a failed one are of no use any more (R48).
            if job is not None and settlement.status == "failed":
                self._drop(job)
        self._make_room_known()

    def look(self) -> None:
        """Look for waiting cohorts at once."""
        self._more.set()

    def _capacity(self) -> int:
        return sum(judge.capacity for judge in self._judges.values())

    def _make_room_known(self) -> None:
        """Claim no more than the free judge slots can start (DESIGN 5)."""
        free = 0 if self._stopping else self._capacity() - self._open
        each = self._open / len(self._jobs) if self._jobs else 8
        self._scribe.context.room = 0 if free <= 0 else max(1, int(free / max(1.0, each)))

    async def _claim_loop(self) -> None:
        while True:
            await self._guarded(self._claim())
            self._more.clear()
            with contextlib.suppress(TimeoutError):
                await self._clock.wait_for(self._more.wait(), IDLE_POLL_S)

    async def _claim(self) -> None:
        room = self._scribe.context.room
        if room > 0 and self._judges:
            await self._scribe.put(Claim(room), within_s=IDLE_POLL_S)

    async def _guarded(self, round_: Coroutine[Any, Any, None]) -> None:
        """One round of a loop; a loop that ended would leave cohorts to wait for ever."""
        try:
            await round_
        except DatabaseUnavailable:
            return  # the scribe has said so; the next round comes by itself
        except Exception as error:
            log.error("round_failed", error=type(error).__name__, next="tried again", exc_info=error)

    async def _renew_loop(self) -> None:
        while True:
            await self._clock.sleep(self._scribe.context.lease_s / 3)
            await self._guarded(self._renew())

    async def _renew(self) -> None:
        """Extend the leases; the cohorts that somebody else has taken are let go."""
        held = tuple(job.held for job in self._jobs.values())
        if not held:
            return
        kept: set[str] = await self._scribe.put(Renew(held), within_s=self._scribe.context.lease_s)
        for one in held:
            job = self._jobs.get(one.cohort_id)
            if one.cohort_id not in kept and job is not None and job.held == one:
                log.warning("lease_lost", cohort_id=one.cohort_id, fence=one.fence, next="its calls are dropped")
                self._drop(job)

    # -- one cohort

    def _begin(self, claimed: Claimed) -> None:
        old = self._jobs.get(claimed.held.cohort_id)
        if old is not None:
            self._drop(old)
        profile = self._scribe.context.profile(claimed.profile_digest)
        left_s = claimed.evaluation_left_s
        deadline = None if left_s is None else self._clock.monotonic() + left_s
        job = Job(claimed, profile, deadline, len(claimed.missing))
        self._jobs[claimed.held.cohort_id] = job
        self._open += job.open
        if not claimed.missing:
            self._spawn(job, self._settle(job))
            return
        pair_texts = _texts_for_judge(claimed, profile)
        if pair_texts is None:
            self._spawn(job, self._refuse_long(job))
            return
        bodies = PairBodies(profile, _conversation(claimed), _principle(claimed, profile), pair_texts)
        for missing in claimed.missing:
            self._spawn(job, self._compare(job, missing, bodies))

    def _spawn(self, job: Job, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        job.tasks.add(task)
        task.add_done_callback(lambda done: self._ended(job, done))

    def _ended(self, job: Job, task: asyncio.Task[None]) -> None:
        job.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, NoLongerOurs):
            log.error("judging_failed", cohort_id=job.held.cohort_id, error=type(error).__name__, exc_info=error)

    def _drop(self, job: Job) -> None:
        """Forget the cohort; its calls are cancelled, and their slots come back as they end."""
        if self._jobs.get(job.held.cohort_id) is job:
            del self._jobs[job.held.cohort_id]
            self._open -= job.open
            job.open = 0
        for task in list(job.tasks):
            if task is not asyncio.current_task():
                task.cancel()
        self._make_room_known()
        if self._scribe.context.room > 0:
            self._more.set()

    async def _settle(self, job: Job) -> None:
        await self._scribe.put(Settle(job.held, job.profile))
        self._drop(job)

    async def _refuse_long(self, job: Job) -> None:
        """An answer is too long for the judge and the profile says to fail (R38)."""
        limit = job.profile.max_answer_chars or 0
        slot = next(slot for slot, answer in sorted(job.claimed.answers.items()) if len(answer) > limit)
        first = job.claimed.missing[0]
        reason = (
            f"The answer in slot {slot} is longer than max_answer_chars={limit}. "
            "Raise it, or set on_long_answer=truncate_middle."
        )
        await self._scribe.put(RecordFailure(job.held, first.first, first.second, first.judge_index, reason, None))
        self._drop(job)

    async def _compare(self, job: Job, missing: Missing, bodies: PairBodies) -> None:
        """Judge one pair; its slot is held until the outcome is committed (R41)."""
        spent = TriesSpent(
            missing.answers_spent, missing.transport_spent, missing.answered, missing.exhausted, missing.tries
        )
        pair_job = PairJob(
            job.held.cohort_id,
            missing.first,
            missing.second,
            missing.judge_index,
            job.profile,
            bodies,
            spent,
            job.deadline,
        )

        async def record(attempt: TryRecord) -> None:
            await self._keep(job, RecordCall(job.held, _call(missing, attempt)))

        async def finish(ended: Ended) -> None:
            job.open -= 1
            self._open -= 1
            await self._keep(job, self._last_word(job, missing, ended))
            failpoint("between_verdicts" if job.open else "after_last_verdict")
            self._make_room_known()
            self._more.set()

        judge = PairJudge(
            pair_job, self._judges[job.claimed.judge], self._transport,
            record=record, finish=finish, clock=self._clock, rng=self._rng,
        )  # fmt: skip
        try:
            await judge.run()
        except DeadlinePassed:
            await self._scribe.put(Expire((job.held.cohort_id,)))
        except NoLongerOurs:
            self._drop(job)
            return
        if job.open == 0:
            self._drop(job)

    @staticmethod
    def _last_word(job: Job, missing: Missing, ended: Ended) -> RecordVerdict | RecordFailure:
        key = (missing.first, missing.second, missing.judge_index)
        call = _call(missing, ended.last)
        text = _readable(ended.last.text)
        match ended:
            case JudgeFailure():
                return RecordFailure(job.held, *key, ended.reason, call)
            case VerdictReached():
                parsed = ended.verdict
                verdict = Verdict(*key, parsed.score_1, parsed.score_2, parsed.ranking, False, parsed.ambiguous)
            case Defaulted():
                profile = job.profile
                verdict = Verdict(
                    *key, profile.default_score, profile.default_score, profile.default_ranking, True, False
                )
        return RecordVerdict(job.held, verdict, call, text, job.profile, last=job.open == 0)

    async def _keep(self, job: Job, command: RecordCall | RecordVerdict | RecordFailure) -> None:
        answer: Kept | Lost = await asyncio.shield(self._scribe.put(command))
        if isinstance(answer, Lost):
            log.info("verdict_not_heard", cohort_id=job.held.cohort_id, fence=job.held.fence, why=answer.why)
            raise NoLongerOurs


def _texts_for_judge(claimed: Claimed, profile: Profile) -> dict[int, str] | None:
    """Answers as the judge is shown them, by slot; None when one is too long and may not be cut (R38)."""
    limit = profile.max_answer_chars
    if limit is None:
        return {slot: shown(answer) for slot, answer in claimed.answers.items()}
    if profile.on_long_answer == "fail" and any(len(answer) > limit for answer in claimed.answers.values()):
        return None
    return {slot: shown(cut_middle(answer, limit)[0]) for slot, answer in claimed.answers.items()}


def _conversation(claimed: Claimed) -> list[Message]:
    try:
        return msgspec.json.decode(claimed.conversation, type=list[Message])
    except msgspec.DecodeError:  # it holds lone surrogates
        return msgspec.convert(decode(claimed.conversation.encode()), list[Message])


def _principle(claimed: Claimed, profile: Profile) -> str | None:
    """The principle that the judge is given: the request's own, else the default, where the profile uses one (R43)."""
    if not profile.use_principle:
        return None
    return claimed.principle if claimed.principle is not None else profile.default_principle


def _call(missing: Missing, attempt: TryRecord) -> Call:
    """The try as its row: texts made readable, and the judge's text only where no verdict row holds it."""
    text = None if attempt.outcome == "ok" else _readable(attempt.text)
    return Call(
        missing.first, missing.second, missing.judge_index, attempt.try_no, attempt.outcome, attempt.budget,
        attempt.answered, attempt.exhausted, attempt.http_status, attempt.endpoint, attempt.error_type,
        attempt.error_code, _readable(attempt.message), _readable(attempt.judge_model), attempt.prompt_tokens,
        attempt.completion_tokens, attempt.latency_ms, text, _readable(attempt.reasoning),
    )  # fmt: skip


def _readable(text: str | None) -> str | None:
    return None if text is None else readable(text)[0]

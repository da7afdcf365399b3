"""Judging: claims full cohorts, judges their missing comparisons, stores each verdict, and lets go what it lost.

Nothing here is the truth: a claim is a lease in the database, a verdict counts when it is committed, and settlement
happens in the transaction of the last one. A crash at any point leaves rows that the next claim carries on from.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Final

import structlog

from cohortd.clock import Clock
from cohortd.errors import DatabaseUnavailable
from cohortd.failpoints import failpoint
from cohortd.judges.caller import DeadlinePassed, Ended, PairJob, PairJudge, TriesSpent, TryRecord, VerdictReached
from cohortd.judges.endpoints import JudgeEndpoints
from cohortd.judges.http import JudgeTransport
from cohortd.judges.wire import PairBodies
from cohortd.service.pairs import (
    Job,
    bodies_for,
    call_of,
    key_of,
    last_word,
    refusal,
    spent_of,
    texts_for_judge,
    too_long,
)
from cohortd.store.commands import (
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
    Refresh,
    Release,
    Renew,
    Results,
    Settle,
)
from cohortd.store.scribe import Scribe

log = structlog.get_logger()

IDLE_POLL_S: Final = 1.0  # between looks for cohorts that another process filled or lost


class NoLongerOurs(Exception):
    """The cohort was settled or claimed by another: its calls are dropped and nothing is written."""


class Judging:
    """Claims cohorts as far as its judges have free slots and sees each through to its settlement."""

    def __init__(
        self,
        scribe: Scribe,
        judges: Mapping[str, JudgeEndpoints],
        transport: JudgeTransport,
        clock: Clock,
        rng: random.Random,
        *,
        claims: bool = True,
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
        self._lone_waiting = False  # a cohort waits to be claimed alone: nothing else is claimed until it was (L7)
        self._claims = claims  # a process that takes requests alone claims nothing
        scribe.context.judges = tuple(judges) if claims else ()
        self._make_room_known()

    # -- life

    def start(self) -> None:
        """Begin to claim and to renew leases."""
        if not self._claims:
            return
        self._loops = [
            asyncio.create_task(self._claim_loop(), name="claims"),
            asyncio.create_task(self._renew_loop(), name="leases"),
        ]

    @property
    def alive(self) -> bool:
        """Whether every loop runs."""
        return not self._claims or (bool(self._loops) and not any(loop.done() for loop in self._loops))

    @property
    def held(self) -> int:
        """Cohorts in the hands of this process."""
        return len(self._jobs)

    def close(self) -> None:
        """Claim nothing and begin no call any more; calls in flight go on."""
        self._stopping = True
        self._scribe.context.room = 0
        for judge in self._judges.values():
            judge.close()

    async def stop(self, drain_s: float) -> None:
        """Let calls in flight end and their outcomes be stored for up to `drain_s`, then give all leases back (R26)."""
        self.close()
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        if drain_s > 0:
            with contextlib.suppress(TimeoutError):
                await self._clock.wait_for(
                    asyncio.gather(*(judge.drained() for judge in self._judges.values())), drain_s
                )
        held = tuple(job.held for job in self._jobs.values())
        for job in list(self._jobs.values()):
            self._drop(job)
        if held:
            with contextlib.suppress(DatabaseUnavailable):  # then the leases run out by themselves
                await self._scribe.put(Release(held), within_s=1.0)

    # -- claims

    def take(self, results: Results) -> None:
        """Begin to judge what a commit claimed; called by the scribe after that commit."""
        if results.lone_waiting is not None:
            self._lone_waiting = results.lone_waiting
        for claimed in results.claimed:
            failpoint("after_claim")
            try:
                self._begin(claimed)
            except Exception as error:
                log.error(
                    "claim_failed", cohort_id=claimed.held.cohort_id, error=type(error).__name__,
                    next="its lease runs out, and it is claimed again; report this", exc_info=error,
                )  # fmt: skip
                self._give_up(claimed.held)
        for cohort_id, settlement in results.settled.items():
            job = self._jobs.get(cohort_id)
            # The calls of a completed cohort have all ended; those of a failed one are of no use any more (R48).
            if job is not None and settlement.status == "failed":
                self._drop(job)
        grown = [job for id_ in results.grown if (job := self._jobs.get(id_)) is not None]
        for job in grown:
            self._spawn(job, self._guarded(self._refresh([job])))
        self._make_room_known()

    def look(self) -> None:
        """Look at once for what may be claimed, and for cohorts that grew."""
        self._more.set()

    def _capacity(self) -> int:
        return sum(judge.capacity for judge in self._judges.values())

    def _make_room_known(self) -> None:
        """Claim no more than the free judge slots can start (DESIGN 5)."""
        lone = self._lone_waiting or any(job.claimed.alone for job in self._jobs.values())
        free = 0 if self._stopping or lone or not self._claims else self._capacity() - self._open
        each = self._open / len(self._jobs) if self._jobs else 8
        self._scribe.context.room = 0 if free <= 0 else max(1, int(free / max(1.0, each)))

    async def _claim_loop(self) -> None:
        while True:
            await self._guarded(self._claim())
            await self._guarded(self._refresh([job for job in self._jobs.values() if not job.full]))
            self._more.clear()
            with contextlib.suppress(TimeoutError):
                await self._clock.wait_for(self._more.wait(), IDLE_POLL_S)

    async def _claim(self) -> None:
        room = self._scribe.context.room
        if self._lone_waiting and not any(job.under_way for job in self._jobs.values()):
            await self._scribe.put(Claim(1, alone=True), within_s=IDLE_POLL_S)
        elif room > 0 and self._judges:
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

    async def _refresh(self, jobs: Iterable[Job]) -> None:
        """Go on with cohorts that have new members, whoever took them in (R36)."""
        seen = tuple(job.seen for job in jobs)
        if not seen:
            return
        changed: dict[str, Claimed]
        changed, gone = await self._scribe.put(Refresh(seen), within_s=IDLE_POLL_S)
        for one in seen:
            job = self._jobs.get(one.held.cohort_id)
            if job is None or job.held != one.held:
                continue
            if one.held.cohort_id in gone:
                self._drop(job)
            elif (now := changed.get(one.held.cohort_id)) is not None:
                job.claimed = now
                self._go_on(job)

    # -- one cohort

    def _begin(self, claimed: Claimed) -> None:
        old = self._jobs.get(claimed.held.cohort_id)
        if old is not None:
            self._drop(old)
        job = Job(claimed, self._scribe.context.profile(claimed.profile_digest))
        self._jobs[claimed.held.cohort_id] = job
        self._go_on(job)

    def _go_on(self, job: Job) -> None:
        """Begin the comparisons that can be judged now, and end those that are wanted no more (R34, R36)."""
        left_s = job.claimed.evaluation_left_s
        job.deadline = None if left_s is None else self._clock.monotonic() + left_s
        wanted = {key_of(missing) for missing in job.claimed.missing}
        for key in [key for key in job.under_way if key not in wanted]:
            job.under_way[key].cancel()
        if job.full and not job.claimed.missing:
            self._spawn(job, self._finish(job))
            return
        if job.full and (slot := too_long(job)) is not None:
            self._spawn(job, self._refuse_long(job, slot))
            return
        texts = texts_for_judge(job)
        if due := job.due(texts):
            bodies = bodies_for(job, texts)
            for missing in due:
                job.under_way[key_of(missing)] = self._spawn(job, self._compare(job, missing, bodies))
                self._open += 1

    def _spawn(self, job: Job, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        job.tasks.add(task)
        task.add_done_callback(lambda done: self._ended(job, done))
        return task

    def _ended(self, job: Job, task: asyncio.Task[None]) -> None:
        job.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, NoLongerOurs):
            log.error(
                "judging_failed", cohort_id=job.held.cohort_id, error=type(error).__name__,
                next="the cohort's lease runs out, and it is claimed again; report this",
                exc_info=error,
            )  # fmt: skip
            self._give_up(job.held)

    def _give_up(self, held: Held) -> None:
        """Renew the lease no more: so the failure counts against the cohort, and cannot go on for ever (L7)."""
        job = self._jobs.get(held.cohort_id)
        if job is not None and job.held == held:
            self._drop(job)

    def _no_longer_under_way(self, job: Job, missing: Missing) -> None:
        if job.under_way.pop(key_of(missing), None) is not None:
            self._open -= 1

    def _drop(self, job: Job) -> None:
        """Forget the cohort; its calls are cancelled, and their slots come back as they end."""
        if self._jobs.get(job.held.cohort_id) is job:
            del self._jobs[job.held.cohort_id]
        self._open -= len(job.under_way)
        job.under_way.clear()
        for task in list(job.tasks):
            if task is not asyncio.current_task():
                task.cancel()
        self._make_room_known()
        if self._scribe.context.room > 0 or self._lone_waiting:
            self._more.set()

    async def _finish(self, job: Job) -> None:
        """Everything is stored. Whether the last verdict settled the cohort was a guess made before it was known full."""
        if not job.settled:
            await self._scribe.put(Settle(job.held, job.profile))
        self._drop(job)

    async def _refuse_long(self, job: Job, slot: int) -> None:
        await self._scribe.put(refusal(job, slot))
        self._drop(job)

    async def _compare(self, job: Job, missing: Missing, bodies: PairBodies) -> None:
        """Judge one pair; its slot is held until the outcome is committed (R41)."""
        try:
            spent = spent_of(missing)
            while True:
                early = not job.full
                total = await self._try(job, missing, bodies, spent, early=early)
                if total is None or not (early and job.full):
                    break
                spent = TriesSpent(total=total)  # the cohort filled up meanwhile: its tries begin afresh (R36)
        except DeadlinePassed:
            await self._scribe.put(Expire((job.held.cohort_id,)))
        except NoLongerOurs:
            self._drop(job)
        finally:
            self._no_longer_under_way(job, missing)
        if job.full and not job.under_way and not job.storing:
            await self._finish(job)

    async def _try(
        self, job: Job, missing: Missing, bodies: PairBodies, spent: TriesSpent, *, early: bool
    ) -> int | None:
        """Judge the pair until it ends; the number of its tries where an early one ended without a verdict."""
        unheard: list[int] = []

        async def record(attempt: TryRecord) -> None:
            await self._keep(job, RecordCall(job.held, call_of(missing, attempt, early=early)))

        async def finish(ended: Ended) -> None:
            if early and not isinstance(ended, VerdictReached):
                unheard.append(ended.last.try_no)
                job.early_over.add(key_of(missing))
                await record(ended.last)
                return
            self._no_longer_under_way(job, missing)
            job.ended.add(key_of(missing))
            job.storing += 1
            try:
                await self._keep(job, last_word(job, missing, ended, early=early))
            finally:
                job.storing -= 1
            failpoint("between_verdicts" if job.under_way else "after_last_verdict")
            self._make_room_known()
            self._more.set()

        pair = PairJob(
            job.held.cohort_id, missing.first, missing.second, missing.judge_index, job.profile, bodies, spent,
            None if early else job.deadline,
        )  # fmt: skip
        judge = PairJudge(
            pair, self._judges[job.claimed.judge], self._transport,
            record=record, finish=finish, clock=self._clock, rng=self._rng,
        )  # fmt: skip
        await judge.run()
        return unheard[0] if unheard else None

    async def _keep(self, job: Job, command: RecordCall | RecordVerdict | RecordFailure) -> None:
        answer: Kept | Lost = await asyncio.shield(self._scribe.put(command))
        if isinstance(answer, Lost):
            log.info("verdict_not_heard", cohort_id=job.held.cohort_id, fence=job.held.fence, why=answer.why)
            raise NoLongerOurs
        job.settled = job.settled or answer.settled is not None

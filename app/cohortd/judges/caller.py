"""The tries of one comparison: two budgets, backoff, and the last word (R45-R47)."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog
from msgspec.structs import replace

from cohortd.clock import Clock
from cohortd.cohorts.verdict import parse_verdict
from cohortd.judges import reasons
from cohortd.judges.endpoints import Endpoint, Failure, JudgeEndpoints, Slot
from cohortd.judges.http import JudgeTransport, Reply, TransportFault
from cohortd.judges.pacing import backoff_s, retry_after_s
from cohortd.judges.tries import (
    DeadlinePassed,
    Defaulted,
    Ended,
    JudgeFailure,
    PairJob,
    TriesSpent,
    TryRecord,
    VerdictReached,
)
from cohortd.judges.wire import JudgeText, decode, error_of, read_reply, refuses_schema

__all__ = [
    "DeadlinePassed",
    "Defaulted",
    "Ended",
    "JudgeFailure",
    "PairJob",
    "PairJudge",
    "TriesSpent",
    "TryRecord",
    "VerdictReached",
]

log = structlog.get_logger()

RETRIED: Final = (408, 425, 429)
REFUSALS: Final = (401, 403, 404)
AT_ONCE: Final = (400, 422)
QUOTA: Final = ("insufficient_quota", "credit_balance_exhausted", "billing_hard_limit_reached")
EARLY_S: Final = 1.0  # timers of event loops may ring a little before the clock agrees


class PairJudge:
    """Judges one comparison. A slot is held during each call and until its outcome is committed, never while pausing."""

    def __init__(
        self,
        job: PairJob,
        endpoints: JudgeEndpoints,
        transport: JudgeTransport,
        *,
        record: Callable[[TryRecord], Awaitable[None]],
        finish: Callable[[Ended], Awaitable[None]],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._job = job
        self._profile = job.profile
        self._endpoints = endpoints
        self._transport = transport
        self._record = record
        self._finish = finish
        self._clock = clock
        self._rng = rng
        self._answers = job.spent.answers
        self._faults = job.spent.transport
        self._answered = job.spent.answered
        self._exhausted = job.spent.exhausted
        self._tries = job.spent.total
        self._avoid: Endpoint | None = None

    async def run(self) -> None:
        """Try until `finish` was told the outcome; DeadlinePassed when the evaluation time ends first."""
        with self._endpoints.working_for(self._job.cohort_id):
            while True:
                try:
                    slot = await self._endpoints.acquire(self._job.deadline, avoid=self._avoid)
                except TimeoutError:
                    raise DeadlinePassed from None
                try:
                    pause_s = await self._once(slot)
                finally:
                    slot.give_back()
                if pause_s is None:
                    return
                await self._pause(pause_s)

    async def _once(self, slot: Slot) -> float | None:
        """One call and its commit; how long to pause before the next, or None when it was the last."""
        began = self._clock.monotonic()
        limit_s, last_chance = self._time_for_call(began)
        bodies, config = self._job.bodies, self._endpoints.config
        body = bodies.body(self._job.first, self._job.second, schema=slot.endpoint.takes_schema)
        try:
            reply: Reply | TransportFault = await self._transport.post(
                slot.endpoint.url + bodies.path,
                body,
                api_key=config.api_key,
                timeout_s=limit_s,
                connect_s=self._profile.judge_connect_timeout_s,
                max_bytes=config.max_response_bytes,
            )
        except TransportFault as fault:
            if fault.kind == "timeout" and last_chance and self._clock.monotonic() > began + limit_s - EARLY_S:
                raise DeadlinePassed from fault  # no failure of the judge's: it was given less than its time
            reply = fault
        self._tries += 1
        note = TryRecord(self._tries, "ok", "none", (self._clock.monotonic() - began) * 1000, slot.endpoint.name)
        if isinstance(reply, TransportFault):
            note = replace(note, outcome=reply.kind, message=reply.error)
            return await self._transport_failed(slot, note, connection=reply.connection)
        note = replace(note, http_status=reply.status)
        if 200 <= reply.status < 300:
            return await self._answered_with(slot, reply, note)
        return await self._refused_with(slot, reply, note, body)

    # -- what came back

    async def _answered_with(self, slot: Slot, reply: Reply, note: TryRecord) -> float | None:
        answer = read_reply(self._profile.judge_format, reply.body)
        if not isinstance(answer, JudgeText) and answer.kind == "unreadable":
            note = replace(note, outcome="undecodable", message=answer.message)
            return await self._transport_failed(slot, note, connection=False)
        self._endpoints.answered(slot)
        note = replace(
            note, text=answer.text, reasoning=answer.reasoning, judge_model=answer.model,
            prompt_tokens=answer.prompt_tokens, completion_tokens=answer.completion_tokens,
        )  # fmt: skip
        if not isinstance(answer, JudgeText):
            self._exhausted += answer.exhausted
            note = replace(
                note, outcome=answer.kind, exhausted=answer.exhausted, error_type=answer.error_type,
                error_code=answer.error_code, message=answer.message,
            )  # fmt: skip
            return await self._spend_answer(note)
        note = replace(note, answered=True)
        profile = self._profile
        verdict = parse_verdict(
            answer.text, default_score=profile.default_score, default_ranking=profile.default_ranking
        )
        if verdict is not None and not (verdict.ambiguous and profile.on_ambiguous == "malformed"):
            await self._finish(VerdictReached(note, verdict))
            return None
        self._answered = True
        return await self._spend_answer(replace(note, outcome="malformed" if verdict is None else "ambiguous"))

    async def _spend_answer(self, note: TryRecord) -> float | None:
        """An answer without a verdict costs the budget of answers."""
        self._answers += 1
        note = replace(note, budget="answers")
        limit = self._profile.judge_answer_retries + 1
        known: dict[str, Any] = {
            "cohort_id": self._job.cohort_id, "pair": self._job.pair, "outcome": note.outcome,
            "answer_try": self._answers, "of": limit, "endpoint": note.endpoint,
        }  # fmt: skip
        if note.exhausted:
            log.warning(
                "judge_budget_exhausted", **known, max_output_tokens=self._profile.judge_max_output_tokens,
                next="raise COHORTD_JUDGE_MAX_OUTPUT_TOKENS, or constrain the judge's reasoning",
            )  # fmt: skip
        else:
            log.warning("judge_answer_unusable", **known, next="its text is in judge_call")
        if self._answers < limit:
            await self._record(note)
            return self._profile.genrm_parse_retry_sleep_s
        await self._give_up(note)
        return None

    async def _refused_with(self, slot: Slot, reply: Reply, note: TryRecord, body: bytes) -> float | None:
        error_type, error_code, message = error_of(_decoded(reply.body))
        status, profile = reply.status, self._profile
        note = replace(note, outcome=f"http_{status}", error_type=error_type, error_code=error_code, message=message)
        if status in REFUSALS or (status == 429 and (error_code in QUOTA or error_type in QUOTA)):
            return await self._judge_refused(slot, note, body)
        floor_s = retry_after_s(reply.retry_after, self._clock.now())
        if floor_s or (floor_s is None and status == 429):
            self._endpoints.rest(slot, floor_s)  # the floor holds for every cohort's calls at this endpoint
        if status >= 500:
            return await self._transport_failed(slot, note, connection=False)
        self._endpoints.heard(slot.endpoint)
        if status in RETRIED:
            return await self._spend_transport(slot, note)
        if (
            profile.judge_format == "chat_template"
            and status in AT_ONCE
            and slot.endpoint.takes_schema
            and refuses_schema(message)
        ):
            slot.endpoint.takes_schema = False
            log.info("judge_takes_no_schema", endpoint=note.endpoint, next="the prompt alone asks for JSON")
            await self._record(note)
            return 0.0
        await self._finish(JudgeFailure(note, reasons.request_refused(self._where(note, body))))
        return None

    async def _judge_refused(self, slot: Slot, note: TryRecord, body: bytes) -> float | None:
        """Key, path, model or quota are wrong: waiting does not help the pair (R45)."""
        if self._profile.on_judge_refusal == "park":
            self._endpoints.refused(slot)
            await self._record(note)
            return 0.0
        if slot.endpoint.out_for != "refusal":
            self._endpoints.heard(slot.endpoint)
        await self._finish(JudgeFailure(note, reasons.judge_refused(self._where(note, body))))
        return None

    async def _transport_failed(self, slot: Slot, note: TryRecord, *, connection: bool) -> float | None:
        """A failure that may be the endpoint's: one that takes it out, or meets it out, costs the pair nothing (R49)."""
        failure = Failure(self._job.cohort_id, (self._job.first, self._job.second), connection)
        if self._endpoints.failed(slot, failure):
            await self._record(note)
            return 0.0
        return await self._spend_transport(slot, note)

    async def _spend_transport(self, slot: Slot, note: TryRecord) -> float | None:
        self._faults += 1
        self._avoid = slot.endpoint
        note = replace(note, budget="transport")
        if self._faults <= self._profile.judge_transport_retries:
            await self._record(note)
            return backoff_s(self._faults, self._rng)
        await self._give_up(note)
        return None

    async def _give_up(self, note: TryRecord) -> None:
        """The budget is used up: the neutral verdict where one answer was completed, else failure (R46)."""
        if self._answered and self._profile.on_unparseable == "default_verdict":
            await self._finish(Defaulted(note))
            return
        known = self._where(note, self._job.bodies.body(self._job.first, self._job.second))
        await self._finish(
            JudgeFailure(note, reasons.no_answer(self._job, note, known, self._exhausted, self._answered))
        )

    def _where(self, note: TryRecord, body: bytes) -> str:
        config = self._endpoints.config
        safe = [reasons.showable(word, config, body) for word in (note.error_type, note.error_code)]
        return reasons.where(self._job, note, safe)

    # -- time

    def _time_for_call(self, now: float) -> tuple[float, bool]:
        """(seconds for the call, whether the evaluation deadline is what ends it)."""
        limit_s, deadline = self._profile.judge_request_timeout_s, self._job.deadline
        if deadline is None or deadline - now > limit_s:
            return limit_s, False
        return max(0.001, deadline - now), True

    async def _pause(self, seconds: float) -> None:
        """Pause, but never past the evaluation deadline."""
        if self._job.deadline is not None:
            left_s = self._job.deadline - self._clock.monotonic()
            if seconds >= left_s:
                await self._clock.sleep(left_s)
                raise DeadlinePassed
        if seconds > 0:
            await self._clock.sleep(seconds)


def _decoded(body: bytes) -> object:
    try:
        return decode(body)
    except ValueError:
        return None

"""The tries of one comparison: two budgets, backoff, and the last word (R45-R47)."""

from __future__ import annotations

import dataclasses
import email.utils
import random
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from cohortd.clock import Clock
from cohortd.cohorts.profile import Profile
from cohortd.cohorts.verdict import ParsedVerdict, parse_verdict
from cohortd.judges.endpoints import Endpoint, Failure, JudgeEndpoints, Slot
from cohortd.judges.http import JudgeTransport, Reply, TransportFault
from cohortd.judges.wire import JudgeText, NoText, PairBodies, error_of, read_reply

log = structlog.get_logger()

BACKOFF_FIRST_S: Final = 0.5
BACKOFF_MOST_S: Final = 30.0
RETRIED: Final = (408, 425, 429)
REFUSALS: Final = (401, 403, 404)
AT_ONCE: Final = (400, 422)
QUOTA: Final = ("insufficient_quota", "credit_balance_exhausted", "billing_hard_limit_reached")
STORED_CHARS: Final = 2000
_SECONDS: Final = re.compile(r"\s*[0-9]+(\.[0-9]+)?\s*")


class DeadlinePassed(Exception):
    """The evaluation time is over before the comparison ended; the database's clock has the last word."""


@dataclass(frozen=True, slots=True)
class TriesSpent:
    """What earlier tries have cost, over all restarts."""

    answers: int = 0
    transport: int = 0
    answered: bool = False  # one of them was a completed answer with text (R46)
    exhausted: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class PairJob:
    """One comparison to be judged; `deadline` is a monotonic instant, or None while none is set."""

    cohort_id: str
    first: int
    second: int
    judge_index: int
    profile: Profile
    bodies: PairBodies
    spent: TriesSpent
    deadline: float | None

    @property
    def pair(self) -> str:
        """The pair as people name it."""
        again = f", pass {self.judge_index}" if self.judge_index else ""
        return f"({self.first}, {self.second}{again})"


@dataclass(frozen=True, slots=True)
class TryRecord:
    """One HTTP try that ended. `budget` is the one that it cost: answers, transport or none."""

    try_no: int
    outcome: str
    budget: str
    latency_ms: float
    endpoint: str
    answered: bool = False
    exhausted: bool = False
    http_status: int | None = None
    error_type: str | None = None
    error_code: str | None = None
    message: str | None = None
    judge_model: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    text: str | None = None
    reasoning: str | None = None


@dataclass(frozen=True, slots=True)
class VerdictReached:
    """The judge gave a verdict."""

    last: TryRecord
    verdict: ParsedVerdict


@dataclass(frozen=True, slots=True)
class Defaulted:
    """The tries are used up, one at least was a completed answer: the neutral verdict stands in (R46)."""

    last: TryRecord


@dataclass(frozen=True, slots=True)
class JudgeFailure:
    """No verdict, for this reason, in our words (L2)."""

    last: TryRecord
    reason: str


Ended = VerdictReached | Defaulted | JudgeFailure


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
        self._schema = True

    async def run(self) -> None:
        """Try until `finish` was told the outcome; DeadlinePassed when the evaluation time ends first."""
        while True:
            try:
                slot = await self._endpoints.acquire(self._job.deadline)
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
        self._tries += 1
        began = self._clock.monotonic()
        job, endpoint = self._job, slot.endpoint
        try:
            reply: Reply | TransportFault = await self._transport.post(
                endpoint.url + job.bodies.path,
                job.bodies.body(job.first, job.second, schema=self._schema),
                api_key=self._endpoints.config.api_key,
                timeout_s=self._time_for_call(began),
                connect_s=self._profile.judge_connect_timeout_s,
                max_bytes=self._endpoints.config.max_response_bytes,
            )
        except TransportFault as fault:
            reply = fault
        latency_ms = (self._clock.monotonic() - began) * 1000
        if isinstance(reply, TransportFault):
            if reply.kind == "timeout" and self._deadline_over():
                raise DeadlinePassed
            return await self._transport_failed(
                endpoint, self._note(endpoint, reply.kind, latency_ms, message=reply.error), reply
            )
        if reply.status == 200:
            return await self._answered_with(endpoint, reply, latency_ms)
        return await self._refused_with(endpoint, reply, latency_ms)

    # -- what came back

    async def _answered_with(self, endpoint: Endpoint, reply: Reply, latency_ms: float) -> float | None:
        answer = read_reply(self._profile.judge_format, reply.body)
        if isinstance(answer, NoText) and answer.kind == "unreadable":
            fault = TransportFault("undecodable", "not JSON")
            note = self._note(endpoint, "undecodable", latency_ms, http_status=200, message=answer.message)
            return await self._transport_failed(endpoint, note, fault)
        self._endpoints.succeeded(endpoint)
        common = {
            "http_status": 200, "judge_model": answer.model, "prompt_tokens": answer.prompt_tokens,
            "completion_tokens": answer.completion_tokens, "reasoning": answer.reasoning,
        }  # fmt: skip
        if isinstance(answer, JudgeText):
            verdict = parse_verdict(
                answer.text,
                default_score=self._profile.default_score,
                default_ranking=self._profile.default_ranking,
            )
            if verdict is not None and not (verdict.ambiguous and self._profile.on_ambiguous == "malformed"):
                note = self._note(endpoint, "ok", latency_ms, answered=True, text=answer.text, **common)
                await self._finish(VerdictReached(note, verdict))
                return None
            self._answered = True
            outcome = "malformed" if verdict is None else "ambiguous"
            return await self._spend_answer(endpoint, outcome, latency_ms, answered=True, text=answer.text, **common)
        self._exhausted += answer.exhausted
        return await self._spend_answer(
            endpoint, answer.kind, latency_ms, exhausted=answer.exhausted, error_type=answer.error_type,
            error_code=answer.error_code, message=answer.message, text=answer.text, **common,
        )  # fmt: skip

    async def _spend_answer(self, endpoint: Endpoint, outcome: str, latency_ms: float, **known: object) -> float | None:
        """An answer without a verdict costs the budget of answers."""
        self._answers += 1
        note = self._note(endpoint, outcome, latency_ms, budget="answers", **known)
        limit = self._profile.judge_answer_retries + 1
        log.warning(
            "judge_budget_exhausted" if note.exhausted else "judge_answer_unusable",
            cohort_id=self._job.cohort_id, pair=self._job.pair, outcome=outcome, answer_try=self._answers, of=limit,
            max_output_tokens=self._profile.judge_max_output_tokens, endpoint=endpoint.name,
        )  # fmt: skip
        if self._answers < limit:
            await self._record(note)
            return self._profile.genrm_parse_retry_sleep_s
        await self._give_up(note)
        return None

    async def _refused_with(self, endpoint: Endpoint, reply: Reply, latency_ms: float) -> float | None:
        error_type, error_code, message = error_of(_decoded(reply.body))
        known: dict[str, object] = {
            "http_status": reply.status, "error_type": error_type, "error_code": error_code, "message": message,
        }  # fmt: skip
        quota = reply.status == 429 and (error_code in QUOTA or error_type in QUOTA)
        if reply.status in REFUSALS or quota:
            return await self._judge_refused(
                endpoint, self._note(endpoint, f"http_{reply.status}", latency_ms, **known)
            )
        if reply.status in RETRIED or reply.status >= 500:
            floor_s = retry_after_s(reply.retry_after, self._clock.now())
            if reply.status == 429:
                self._endpoints.rest(endpoint, floor_s or BACKOFF_FIRST_S)
            note = self._note(endpoint, f"http_{reply.status}", latency_ms, **known)
            if reply.status < 500:
                return await self._spend_transport(note, floor_s)
            return await self._transport_failed(endpoint, note, None, floor_s)
        if reply.status in AT_ONCE and self._schema and self._profile.judge_format == "chat_template":
            self._schema = False  # the server does not take our schema; the prompt asks for JSON all the same
            await self._record(self._note(endpoint, f"http_{reply.status}", latency_ms, **known))
            return 0.0
        note = self._note(endpoint, f"http_{reply.status}", latency_ms, **known)
        await self._finish(JudgeFailure(note, f"{self._where(note)}: the judge refuses the request."))
        return None

    async def _judge_refused(self, endpoint: Endpoint, note: TryRecord) -> float | None:
        """Key, path, model or quota are wrong: waiting does not help the pair (R45)."""
        if self._profile.on_judge_refusal == "park":
            self._endpoints.eject(endpoint, f"HTTP {note.http_status}")
            await self._record(note)
            return 0.0
        reason = f"{self._where(note)}: check the judge's key, URL, model and quota."
        await self._finish(JudgeFailure(note, reason))
        return None

    async def _transport_failed(
        self, endpoint: Endpoint, note: TryRecord, fault: TransportFault | None, floor_s: float | None = None
    ) -> float | None:
        """A failure that may be the endpoint's: one that takes it out, or meets it out, costs the pair nothing (R49)."""
        connection = fault is not None and fault.kind in ("connect", "reset", "cut")
        failure = Failure(self._job.cohort_id, (self._job.first, self._job.second), connection)
        if self._endpoints.failed(endpoint, failure):
            await self._record(note)
            return floor_s or 0.0
        return await self._spend_transport(note, floor_s)

    async def _spend_transport(self, note: TryRecord, floor_s: float | None) -> float | None:
        self._faults += 1
        charged = dataclasses.replace(note, budget="transport")
        if self._faults <= self._profile.judge_transport_retries:
            await self._record(charged)
            ceiling = min(BACKOFF_MOST_S, BACKOFF_FIRST_S * 2 ** (self._faults - 1))
            return max(floor_s or 0.0, self._rng.uniform(0, ceiling))
        await self._give_up(charged)
        return None

    async def _give_up(self, note: TryRecord) -> None:
        """The budget is used up: the neutral verdict where one answer was completed, else failure (R46)."""
        if self._answered and self._profile.on_unparseable == "default_verdict":
            await self._finish(Defaulted(note))
            return
        await self._finish(JudgeFailure(note, self._no_answer(note)))

    # -- words

    def _no_answer(self, note: TryRecord) -> str:
        if self._exhausted:
            return (
                f"{self._where(note)}: {self._exhausted} of {self._tries} tries exhausted "
                f"max_output_tokens={self._profile.judge_max_output_tokens} without a verdict. "
                "Raise COHORTD_JUDGE_MAX_OUTPUT_TOKENS, or constrain the judge's reasoning."
            )
        kind = "usable" if self._answered else "completed"
        return f"{self._where(note)}: no {kind} answer after {self._tries} tries."

    def _where(self, note: TryRecord) -> str:
        words = [f"Pair {self._job.pair} at {note.endpoint}, try {note.try_no}, {note.outcome}"]
        if note.http_status is not None and note.http_status != 200:
            words.append(f"HTTP {note.http_status}")
        words += [f"{name} {value}" for name, value in (("type", note.error_type), ("code", note.error_code)) if value]
        return ", ".join(words)

    def _note(self, endpoint: Endpoint, outcome: str, latency_ms: float, **known: object) -> TryRecord:
        known.setdefault("budget", "none")
        message = known.get("message")
        if isinstance(message, str):
            known["message"] = message[:STORED_CHARS]
        return TryRecord(try_no=self._tries, outcome=outcome, latency_ms=latency_ms, endpoint=endpoint.name, **known)  # type: ignore[arg-type]

    # -- time

    def _deadline_over(self) -> bool:
        return self._job.deadline is not None and self._clock.monotonic() >= self._job.deadline

    def _time_for_call(self, now: float) -> float:
        limit = self._profile.judge_request_timeout_s
        return limit if self._job.deadline is None else max(0.001, min(limit, self._job.deadline - now))

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
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def retry_after_s(header: str | None, now: float) -> float | None:
    """Seconds that a Retry-After header asks for, given as seconds or as a date; None when it asks for nothing."""
    if header is None:
        return None
    try:
        seconds = (
            float(header) if _SECONDS.fullmatch(header) else email.utils.parsedate_to_datetime(header).timestamp() - now
        )
    except (ValueError, TypeError):
        return None
    return max(0.0, seconds)

"""Verdicts: each is stored once, by the process that holds the cohort, while its evaluation time lasts (R41, L5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cohortd.store import tables as t
from cohortd.store import transitions
from cohortd.store.commands import Call, Held, Kept, Lost, RecordCall, RecordFailure, RecordVerdict
from cohortd.store.statements import Now, both, insert
from cohortd.store.work import CohortState, Work

if TYPE_CHECKING:
    from cohortd.store.batch import Context

GIVE_VERDICT = both(
    "give_verdict",
    """UPDATE comparison SET status = 'done', score_1 = {k.s1}, score_2 = {k.s2}, ranking = {k.rk}, defaulted = {k.df},
              ambiguous = {k.am}, tries = {k.tries}, judge_model = {k.model}, prompt_tokens = {k.pt},
              completion_tokens = {k.ct}, latency_ms = {k.ms}, text = {k.txt}, ended_at = {now} {from}
        WHERE comparison.cohort_id = {k.id} AND comparison.first = {k.a} AND comparison.second = {k.b}
          AND comparison.judge_index = {k.j} AND comparison.status = 'planned'""",
    keys="id a b j s1 s2 rk df am tries model pt ct ms txt",
    types="uuid integer integer integer float8 float8 float8 boolean boolean integer text bigint bigint float8 text",
)
COUNT_TRY = both(
    "count_try",
    """UPDATE comparison SET tries = {k.tries} {from}
        WHERE comparison.cohort_id = {k.id} AND comparison.first = {k.a} AND comparison.second = {k.b}
          AND comparison.judge_index = {k.j} AND comparison.tries < {k.tries}""",
    keys="id a b j tries",
    types="uuid integer integer integer integer",
)
FAIL_COMPARISON = both(
    "fail_comparison",
    """UPDATE comparison SET status = 'failed', ended_at = {now} {from}
        WHERE comparison.cohort_id = {k.id} AND comparison.first = {k.a} AND comparison.second = {k.b}
          AND comparison.judge_index = {k.j} AND comparison.status = 'planned'""",
    keys="id a b j",
    types="uuid integer integer integer",
)
INSERT_CALL = insert(
    "insert_call",
    t.judge_call,
    dict.fromkeys(
        (
            "cohort_id", "first", "second", "judge_index", "try_no", "fence", "outcome", "budget", "answered",
            "exhausted", "http_status", "endpoint", "error_type", "error_code", "message", "judge_model",
            "prompt_tokens", "completion_tokens", "latency_ms", "text", "reasoning", "early",
        )
    )
    | {"ended_at": Now()},
    or_ignore=True,
)  # fmt: skip


def lost(work: Work, held: Held, context: Context) -> Lost | None:
    """Why the holder may not write, if it may not (L5); the row is locked, so the answer holds until the commit."""
    cohort = work.cohorts.get(held.cohort_id)
    if cohort is None:
        return Lost("the cohort is gone")
    if cohort.settled:
        return Lost(f"the cohort is {cohort.status}")
    if cohort.fence != held.fence or cohort.claimed_by != context.token:
        return Lost("another process claimed the cohort")
    return None


def too_late(work: Work, held: Held, context: Context) -> Lost | None:
    """Why a verdict is not heard, if it is not; a cohort found past its evaluation deadline fails here (L4)."""
    refused = lost(work, held, context)
    if refused is None and _cohort(work, held).evaluation_over:
        transitions.expire_evaluation(work, _cohort(work, held), context)
        return Lost("the evaluation time is over")
    return refused


def record_verdict(work: Work, command: RecordVerdict, context: Context) -> Kept | Lost:
    """Remember a verdict; whether it was the cohort's last is seen at settlement."""
    refused = too_late(work, command.held, context)
    if refused is not None:
        return refused
    verdict, call = command.verdict, command.call
    cohort_id = command.held.cohort_id
    work.write(
        GIVE_VERDICT,
        (
            cohort_id, verdict.first, verdict.second, verdict.judge_index, verdict.score_1, verdict.score_2,
            verdict.ranking, verdict.defaulted, verdict.ambiguous, call.try_no if call else 0,
            call.judge_model if call else None, call.prompt_tokens if call else None,
            call.completion_tokens if call else None, call.latency_ms if call else None, command.text,
        ),
    )  # fmt: skip
    if call is not None:
        write_call(work, command.held, call)
    return Kept()


def record_call(work: Work, command: RecordCall, context: Context) -> Kept | Lost:
    """Remember a try that another one follows, so that a restart goes on with what is left of its budget."""
    refused = too_late(work, command.held, context)
    if refused is not None:
        return refused
    call = command.call
    work.write(COUNT_TRY, (command.held.cohort_id, call.first, call.second, call.judge_index, call.try_no))
    write_call(work, command.held, call)
    return Kept()


def record_failure(work: Work, command: RecordFailure, context: Context) -> Kept | Lost:
    """A comparison ended without a verdict: its cohort fails (R48)."""
    refused = too_late(work, command.held, context)
    if refused is not None:
        return refused
    key = (command.held.cohort_id, command.first, command.second, command.judge_index)
    if command.call is not None:
        work.write(COUNT_TRY, (*key, command.call.try_no))
        write_call(work, command.held, command.call)
    work.write(FAIL_COMPARISON, key)
    transitions.fail(work, _cohort(work, command.held), "judge_failed", command.reason)
    return Kept(work.settled[command.held.cohort_id])


def write_call(work: Work, held: Held, call: Call) -> None:
    """Remember the row of a try that ended."""
    work.write(
        INSERT_CALL,
        (
            held.cohort_id, call.first, call.second, call.judge_index, call.try_no, held.fence, call.outcome,
            call.budget, call.answered, call.exhausted, call.http_status, call.endpoint, call.error_type,
            call.error_code, call.message, call.judge_model, call.prompt_tokens, call.completion_tokens,
            call.latency_ms, call.text, call.reasoning, call.early,
        ),
    )  # fmt: skip


def _cohort(work: Work, held: Held) -> CohortState:
    return work.cohorts[held.cohort_id]

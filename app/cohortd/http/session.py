"""The rest of Gym's contract: sessions that hold nothing, and metrics over finished rollouts (SPEC 8)."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from litestar import Request, Response, get, post

from cohortd.errors import Refused
from cohortd.http import access
from cohortd.http.body import raw_fields, value_of
from cohortd.http.replies import encode
from cohortd.http.state import HttpState

Row = Mapping[str, Any]
LARGEST: Final = 1e300  # beyond it sums would overflow; NaN and the infinities are not below it either
_THREAD: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metrics")

STATISTICS: Final[dict[str, Callable[[Sequence[float]], float]]] = {
    "mean": statistics.fmean,
    "max": max,
    "min": min,
    "median": statistics.median,
    "std": lambda values: statistics.stdev(values) if len(values) > 1 else 0.0,  # of a sample, as Gym's
}


@post("/seed_session", status_code=200, include_in_schema=False)
async def seed_session(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Accept any object and keep nothing: a cohort needs no session."""
    raw_fields(await _body(request))
    return _json({})


@get("/reverify_mode", include_in_schema=False)
async def reverify_mode(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Rewards are replayed, never made again."""
    access.check(request.scope, request.app.state["http"])
    return _json("unsupported")


@post("/aggregate_metrics", status_code=200, include_in_schema=False)
async def aggregate_metrics(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Statistics over the numeric fields of finished rollouts; masked ones are left out and counted."""
    state: HttpState = request.app.state["http"]
    rows = value_of(raw_fields(await _body(request)), "verify_responses")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Refused("invalid_request", "`verify_responses` must be a list of objects.")
    counted_as_zero = state.settings.service.count_failure_classes_as_zero
    # A body of the largest size takes seconds; leases and everybody who waits must not.
    return _json(await asyncio.get_running_loop().run_in_executor(_THREAD, summary, rows, counted_as_zero))


def summary(rows: Sequence[Row], counted_as_zero: Sequence[str] = ()) -> dict[str, Any]:
    """Metrics by task and over all; a row of a class in `counted_as_zero` takes part with reward 0, in here only."""
    kept: list[Row] = []
    left_out = as_zero = 0
    for row in rows:
        failure = row.get("_ng_failure_class")
        if failure is not None and failure in counted_as_zero:
            kept.append({**row, "reward": 0.0})
            as_zero += 1
        elif row.get("mask_sample") or failure is not None:
            left_out += 1
        else:
            kept.append(row)
    tasks: dict[Any, list[Row]] = {}
    for row in kept:
        index = row.get("_ng_task_index")
        known = isinstance(index, int) and not isinstance(index, bool)
        tasks.setdefault(index if known else None, []).append(row)
    groups = [
        {"_ng_task_index": index, **found}
        for index, members in sorted(tasks.items(), key=lambda item: (item[0] is None, item[0] or 0))
        if (found := _statistics(members))
    ]
    overall = _statistics(kept)
    agent: dict[str, Any] = dict(overall)
    if left_out:
        agent["masked_rollouts"] = left_out
    if as_zero:
        agent["rollouts_counted_as_zero"] = as_zero
    return {
        "group_level_metrics": groups,
        "agent_metrics": agent,
        "key_metrics": {name: value for name, value in overall.items() if name.startswith("mean/")},
    }


def _statistics(rows: Iterable[Row]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            if not name.startswith("_") and _countable(value):
                values.setdefault(name, []).append(value)
    return {f"{word}/{name}": float(of(found)) for name, found in values.items() for word, of in STATISTICS.items()}


def _countable(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LARGEST


async def _body(request: Request[Any, Any, Any]) -> bytes:
    state: HttpState = request.app.state["http"]
    access.check(request.scope, state)
    return await state.bodies.read(request.receive, access.content_length(request.scope))


def _json(value: Any) -> Response[bytes]:
    return Response(encode(value), media_type="application/json")

"""Whether the process lives, and whether it may be sent work."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any, Final

import msgspec
from litestar import Request, Response, get

from cohortd.http.state import HttpState
from cohortd.store import reads

ANSWERS_WITHIN_S: Final = 1.0


class Liveness(msgspec.Struct):
    """The process answers and every loop of it runs."""

    status: str


class Readiness(msgspec.Struct):
    """Whether work may be sent here, and what stands in the way."""

    status: str
    database: str  # answers, away, or another schema
    stopping: bool
    judges_down_since: dict[str, str]  # by judge: since when none of its endpoints is healthy
    cohorts_without_judge: dict[str, int]  # by judge: open cohorts whose judge this process is not configured for
    waiting: int
    judging: int


@get("/health/live", tags=["health"], sync_to_thread=False)
def live(request: Request[Any, Any, Any]) -> Response[Liveness]:
    """200 while every loop runs; 503 asks for a restart."""
    state: HttpState = request.app.state["http"]
    alive = state.service.alive or state.service.stopping
    return Response(Liveness("live" if alive else "dead"), status_code=200 if alive else 503)


@get("/health/ready", tags=["health"])
async def ready(request: Request[Any, Any, Any]) -> Response[Readiness]:
    """200 while the database answers and the service is not stopping; a judge that is down does not count (R49)."""
    state: HttpState = request.app.state["http"]
    service = state.service
    database = await _database(state)
    good = database == "answers" and not service.stopping and service.alive
    down = {name: _instant(since) for name, judge in service.judges.items() if (since := judge.down_since_unix())}
    without = await reads.cohorts_without_judge(service.database, tuple(service.judges)) if good else {}
    body = Readiness(
        "ready" if good else "not ready", database, service.stopping, down, without, service.waiters.count,
        service.judging.held,
    )  # fmt: skip
    return Response(body, status_code=200 if good else 503)


@get("/health/judge", tags=["health"], sync_to_thread=False)
def judge(request: Request[Any, Any, Any]) -> Response[dict[str, str]]:
    """200 while every judge has a healthy endpoint."""
    state: HttpState = request.app.state["http"]
    states = {name: "down" if j.down_since() is not None else "up" for name, j in state.service.judges.items()}
    return Response(states, status_code=503 if "down" in states.values() else 200)


def _instant(unix: float) -> str:
    return datetime.datetime.fromtimestamp(unix, datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


async def _database(state: HttpState) -> str:
    if state.service.scribe.away_since is not None:
        return "away"
    try:
        async with asyncio.timeout(ANSWERS_WITHIN_S):
            revision = await reads.revision(state.service.database)
    except Exception:  # noqa: BLE001  (whatever stands in the way, the answer is the same)
        return "away"
    return "answers" if revision == state.revision else "another schema"

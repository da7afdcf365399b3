"""A judge's endpoints: who is asked next, how many at once, who rests and who is out (R49). All of it per process."""

from __future__ import annotations

import asyncio
import collections
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import structlog

from cohortd.clock import Clock
from cohortd.judges.config import JudgeConfig

log = structlog.get_logger()

PROBE_FIRST_S: Final = 1.0
PROBE_MOST_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed try, for the question whether the endpoint or the pair is to blame."""

    cohort_id: str
    members: tuple[int, int]
    connection: bool


@dataclass(slots=True, eq=False)
class Endpoint:
    """One URL of a judge, under a name that may be shown."""

    name: str
    url: str
    limit: int
    outstanding: int = 0
    resting_until: float = 0.0  # a 429 asked for it
    ejected_since: float | None = None
    probe_at: float = 0.0
    probe_pause_s: float = PROBE_FIRST_S
    probing: bool = False
    row: list[Failure] = field(default_factory=list)  # failures since the last success

    def free(self, now: float) -> bool:
        """Whether a call may begin here now."""
        if self.outstanding >= self.limit or now < self.resting_until:
            return False
        return self.ejected_since is None or (not self.probing and now >= self.probe_at)


class Slot:
    """The right to one call at an endpoint; it is given back once, after the call's outcome is committed."""

    def __init__(self, judge: JudgeEndpoints, endpoint: Endpoint, probe: bool) -> None:
        self._judge = judge
        self._given_back = False
        self.endpoint: Final = endpoint
        self.probe: Final = probe

    def give_back(self) -> None:
        """Let somebody else call."""
        if not self._given_back:
            self._given_back = True
            self._judge.give_back(self)


class JudgeEndpoints:
    """The endpoints of one judge, least outstanding first."""

    def __init__(self, config: JudgeConfig, clock: Clock) -> None:
        self.config: Final = config
        self._clock = clock
        self.endpoints: Final = [
            Endpoint(_shown(config.name, number, url), url.rstrip("/"), config.concurrency)
            for number, url in enumerate(config.urls)
        ]
        self._queue: collections.deque[asyncio.Future[None]] = collections.deque()
        self.active_cohorts: collections.Counter[str] = collections.Counter()

    @property
    def capacity(self) -> int:
        """Calls that may be in flight at once."""
        return sum(endpoint.limit for endpoint in self.endpoints)

    @property
    def outstanding(self) -> int:
        """Slots that are taken."""
        return sum(endpoint.outstanding for endpoint in self.endpoints)

    def down_since(self) -> float | None:
        """Since when (monotonic) no endpoint is healthy; None while one is."""
        since = [endpoint.ejected_since for endpoint in self.endpoints]
        return None if None in since or not since else max(moment for moment in since if moment is not None)

    async def acquire(self, until: float | None) -> Slot:
        """A slot at the least busy endpoint that takes calls, or TimeoutError at the monotonic instant `until`."""
        while True:
            now = self._clock.monotonic()
            if until is not None and now >= until:
                raise TimeoutError
            free = [endpoint for endpoint in self.endpoints if endpoint.free(now)]
            if free:
                return self._take(min(free, key=lambda endpoint: endpoint.outstanding))
            await self._wait(now, until)

    def _take(self, endpoint: Endpoint) -> Slot:
        endpoint.outstanding += 1
        probe = endpoint.ejected_since is not None
        if probe:
            endpoint.probing = True
        return Slot(self, endpoint, probe)

    async def _wait(self, now: float, until: float | None) -> None:
        """Until a slot comes back or a rest is over."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        moments = [max(e.resting_until, e.probe_at if e.ejected_since is not None else 0.0) for e in self.endpoints]
        next_at = min((moment for moment in moments if moment > now), default=None)
        pause_s = 3600.0 if next_at is None else max(0.001, next_at - now)
        if until is not None:
            pause_s = min(pause_s, max(0.0, until - now))
        try:
            await self._clock.wait_for(turn, pause_s)
        except TimeoutError:
            return
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._next()  # the turn was given to a task that is gone: it passes on
            raise
        finally:
            if turn in self._queue:
                self._queue.remove(turn)

    def give_back(self, slot: Slot) -> None:
        """A call's outcome is committed: whoever waits longest is next."""
        slot.endpoint.outstanding -= 1
        if slot.probe:
            slot.endpoint.probing = False
        self._next()

    def _next(self) -> None:
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    # -- health

    def succeeded(self, endpoint: Endpoint) -> None:
        """It answered: whatever was held against it is forgotten."""
        endpoint.row.clear()
        if endpoint.ejected_since is not None:
            log.info(
                "judge_endpoint_back",
                endpoint=endpoint.name,
                away_s=round(self._clock.monotonic() - endpoint.ejected_since, 1),
            )
            endpoint.ejected_since, endpoint.probe_pause_s = None, PROBE_FIRST_S
            for _ in range(endpoint.limit):
                self._next()

    def failed(self, endpoint: Endpoint, failure: Failure) -> bool:
        """It failed; True when that takes it out, or it was out already: then the try costs the pair nothing (R49)."""
        endpoint.row.append(failure)
        if endpoint.ejected_since is not None:
            self._postpone_probe(endpoint)
            return True
        if not self._to_blame(endpoint):
            return False
        self.eject(endpoint, "connection" if failure.connection else "server errors")
        return True

    def eject(self, endpoint: Endpoint, why: str) -> None:
        """Take the endpoint out until a probe succeeds; the probe is the next real call."""
        if endpoint.ejected_since is None:
            endpoint.ejected_since = self._clock.monotonic()
            log.warning("judge_endpoint_out", endpoint=endpoint.name, why=why, next=f"probed after {PROBE_FIRST_S:g} s")
        self._postpone_probe(endpoint)

    def rest(self, endpoint: Endpoint, seconds: float) -> None:
        """It asked to be left alone: no cohort calls it meanwhile."""
        endpoint.resting_until = max(endpoint.resting_until, self._clock.monotonic() + seconds)

    def _postpone_probe(self, endpoint: Endpoint) -> None:
        endpoint.probe_at = self._clock.monotonic() + endpoint.probe_pause_s
        endpoint.probe_pause_s = min(PROBE_MOST_S, endpoint.probe_pause_s * 2)

    def _to_blame(self, endpoint: Endpoint) -> bool:
        """Whether the row of failures speaks against the endpoint and not against one cohort or one member's answer."""
        row = endpoint.row
        if len(row) < self.config.eject_after:
            return False
        if all(failure.connection for failure in row[-self.config.eject_after :]):
            return True
        if len({failure.cohort_id for failure in row}) >= 2:
            return True
        if len(self.active_cohorts) > 1:
            return False
        pairs = {failure.members for failure in row}
        return len(pairs) >= 3 and not set.intersection(*(set(pair) for pair in pairs))


def _shown(judge: str, number: int, url: str) -> str:
    """A name for logs and failure reasons: the judge, the endpoint's number and its host, never credentials or paths."""
    parts = urlsplit(url)
    host = parts.hostname or "unknown"
    return f"{judge}#{number} ({host}:{parts.port})" if parts.port else f"{judge}#{number} ({host})"

"""A judge's endpoints: who is asked next, how many at once, who rests and who is out (R49). All of it per process."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import urlsplit

import structlog

from cohortd.clock import Clock
from cohortd.judges.config import JudgeConfig

log = structlog.get_logger()

PROBE_FIRST_S: Final = 1.0
PROBE_MOST_S: Final = 30.0
REST_FIRST_S: Final = 0.1  # for a 429 that names no time
REST_MOST_S: Final = 30.0
ASKED_REST_MOST_S: Final = 3600.0  # a Retry-After of years must not take an endpoint away until the next restart
ROW_KEPT: Final = 64

Out = Literal["connection", "server errors", "refusal"]


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
    last_taken: int = 0  # orders endpoints that are equally busy
    resting_until: float = 0.0  # it asked to be left alone
    rested_at: float = 0.0
    rest_pause_s: float = REST_FIRST_S
    ejected_since: float | None = None
    out_for: Out | None = None
    probe_at: float = 0.0
    probe_pause_s: float = PROBE_FIRST_S
    probing: bool = False
    heard_at: float | None = None  # when it last answered anything
    takes_schema: bool = True  # until it refuses a JSON schema (R42)
    row: collections.deque[Failure] = field(default_factory=lambda: collections.deque(maxlen=ROW_KEPT))

    def free(self, now: float) -> bool:
        """Whether a call may begin here now."""
        if self.outstanding >= self.limit or now < self.resting_until:
            return False
        return self.ejected_since is None or (not self.probing and now >= self.probe_at)

    def opens_at(self) -> float | None:
        """The instant at which time alone lets the next call in; None when something else has to happen first."""
        if self.outstanding >= self.limit or (self.ejected_since is not None and self.probing):
            return None
        return max(self.resting_until, 0.0 if self.ejected_since is None else self.probe_at)


class Slot:
    """The right to one call at an endpoint; it is given back once, after the call's outcome is committed."""

    __slots__ = ("_given_back", "_judge", "endpoint", "probe", "taken_at")

    def __init__(self, judge: JudgeEndpoints, endpoint: Endpoint, taken_at: float) -> None:
        self._judge = judge
        self._given_back = False
        self.endpoint: Final = endpoint
        self.taken_at: Final = taken_at
        self.probe: Final = endpoint.ejected_since is not None

    def give_back(self) -> None:
        """Let somebody else call."""
        if not self._given_back:
            self._given_back = True
            self._judge.give_back(self)


class JudgeEndpoints:
    """The endpoints of one judge: least outstanding first, and first come, first served among those who wait."""

    def __init__(self, config: JudgeConfig, clock: Clock) -> None:
        self.config: Final = config
        self._clock = clock
        self.endpoints: Final = [
            Endpoint(_shown(config.name, number, url), url.rstrip("/"), config.concurrency)
            for number, url in enumerate(config.urls)
        ]
        self._waiting: dict[asyncio.Future[Slot], Endpoint | None] = {}  # in order, with whom to avoid
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_at = 0.0
        self._taken = 0
        self._closed = False
        self._drained = asyncio.Event()
        self.active_cohorts: Final[collections.Counter[str]] = collections.Counter()

    @property
    def capacity(self) -> int:
        """Calls that may be in flight at once."""
        return sum(endpoint.limit for endpoint in self.endpoints)

    @property
    def outstanding(self) -> int:
        """Slots that are taken."""
        return sum(endpoint.outstanding for endpoint in self.endpoints)

    @property
    def waiting(self) -> int:
        """Comparisons that wait for a slot."""
        return len(self._waiting)

    def down_since(self) -> float | None:
        """Since when (the clock's monotonic) no endpoint is healthy; None while one is."""
        since = [endpoint.ejected_since for endpoint in self.endpoints]
        return None if None in since or not since else max(moment for moment in since if moment is not None)

    def down_for_s(self) -> float | None:
        """For how long no endpoint has been healthy; None while one is."""
        since = self.down_since()
        return None if since is None else self._clock.monotonic() - since

    def down_since_unix(self) -> float:
        """Since when no endpoint is healthy, in Unix time; 0 while one is."""
        down_s = self.down_for_s()
        return 0.0 if down_s is None else self._clock.now() - down_s

    @contextlib.contextmanager
    def working_for(self, cohort_id: str) -> Iterator[None]:
        """Count the cohort as one that this judge works for: whether it is the only one decides whom failures blame."""
        self.active_cohorts[cohort_id] += 1
        try:
            yield
        finally:
            self.active_cohorts[cohort_id] -= 1
            if not self.active_cohorts[cohort_id]:
                del self.active_cohorts[cohort_id]

    def close(self) -> None:
        """Begin no call any more: whoever waits for a slot goes on waiting until it is cancelled (R26)."""
        self._closed = True
        if not self.outstanding:
            self._drained.set()

    async def drained(self) -> None:
        """Return when, after `close`, the outcome of every call that was in flight is committed."""
        await self._drained.wait()

    # -- slots

    async def acquire(self, until: float | None, *, avoid: Endpoint | None = None) -> Slot:
        """A slot at the least busy endpoint that takes calls, or TimeoutError at the monotonic instant `until`.

        `avoid` is asked only when no other can be: the pair has just failed there.
        """
        now = self._clock.monotonic()
        if until is not None and now >= until:
            raise TimeoutError
        if not self._waiting and (slot := self._take(now, avoid)) is not None:
            return slot
        turn: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = avoid
        try:
            self._serve()
            return await (turn if until is None else self._clock.wait_for(turn, until - now))
        except BaseException:
            if turn.done() and not turn.cancelled():
                turn.result().give_back()  # it came in the moment in which its taker went away
            raise
        finally:
            self._waiting.pop(turn, None)
            self._set_alarm(self._clock.monotonic())

    def give_back(self, slot: Slot) -> None:
        """A call's outcome is committed: whoever waits longest is next."""
        slot.endpoint.outstanding -= 1
        if slot.probe:
            slot.endpoint.probing = False
        if self._closed and not self.outstanding:
            self._drained.set()
        self._serve()

    def _take(self, now: float, avoid: Endpoint | None) -> Slot | None:
        free = [] if self._closed else [endpoint for endpoint in self.endpoints if endpoint.free(now)]
        if not free:
            return None
        endpoint = min(free, key=lambda e: (e is avoid, e.outstanding, e.last_taken))
        self._taken += 1
        endpoint.outstanding += 1
        endpoint.last_taken = self._taken
        slot = Slot(self, endpoint, now)
        endpoint.probing = endpoint.probing or slot.probe
        return slot

    def _serve(self) -> None:
        """Hand free slots to those who wait, in their order."""
        if not self._waiting or self._closed:
            return
        now = self._clock.monotonic()
        while self._waiting:
            turn, avoid = next(iter(self._waiting.items()))
            if turn.done():
                del self._waiting[turn]
                continue
            slot = self._take(now, avoid)
            if slot is None:
                break
            del self._waiting[turn]
            turn.set_result(slot)
        self._set_alarm(now)

    def _set_alarm(self, now: float) -> None:
        """One sleeper for all who wait: it serves them when a rest or a probe's pause is over."""
        moments = [at for e in self.endpoints if (at := e.opens_at()) is not None] if self._waiting else []
        if not moments:
            if self._alarm is not None:
                self._alarm.cancel()
                self._alarm = None
            return
        at = min(moments)
        if self._alarm is None or self._alarm.done() or self._alarm_at != at:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm, self._alarm_at = asyncio.create_task(self._ring(max(0.001, at - now))), at

    async def _ring(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._alarm = None
        self._serve()

    # -- health

    def answered(self, slot: Slot) -> None:
        """It answered: whatever was held against it is forgotten."""
        self.heard(slot.endpoint)
        if slot.taken_at >= slot.endpoint.rested_at:
            slot.endpoint.rest_pause_s = REST_FIRST_S

    def heard(self, endpoint: Endpoint) -> None:
        """It gave an answer, to a comparison or to an idle probe, and is back if it was out."""
        now = self._clock.monotonic()
        endpoint.heard_at = now
        endpoint.row.clear()
        if endpoint.ejected_since is None:
            return
        down_s = self.down_for_s()
        log.info("judge_endpoint_back", endpoint=endpoint.name, away_s=round(now - endpoint.ejected_since, 1))
        endpoint.ejected_since, endpoint.out_for = None, None
        if down_s is not None:
            log.info("judge_up", judge=self.config.name, down_s=round(down_s, 1))
        self._serve()

    def failed(self, slot: Slot, failure: Failure) -> bool:
        """It failed; True when that takes it out, or it was out already: then the try costs the pair nothing (R49)."""
        endpoint = slot.endpoint
        if endpoint.ejected_since is not None:
            self._still_out(slot)
            return True
        endpoint.row.append(failure)
        if not self._to_blame(endpoint):
            return False
        self._eject(endpoint, "connection" if failure.connection else "server errors")
        return True

    def refused(self, slot: Slot) -> None:
        """Its key, path, model or quota are wrong, and the profile parks: it is out until it accepts a call (R45)."""
        if slot.endpoint.ejected_since is None:
            self._eject(slot.endpoint, "refusal")
        else:
            slot.endpoint.out_for = "refusal"
            self._still_out(slot)

    def rest(self, slot: Slot, asked_s: float | None) -> None:
        """It asked to be left alone, by Retry-After or by a bare 429: no cohort calls it meanwhile.

        Bare ones in a row double the pause; those of calls that were on their way before the last rest are one with it.
        """
        endpoint, now = slot.endpoint, self._clock.monotonic()
        if asked_s is None:
            if slot.taken_at < endpoint.rested_at:
                return
            asked_s = endpoint.rest_pause_s
            endpoint.rest_pause_s = min(REST_MOST_S, endpoint.rest_pause_s * 2)
        endpoint.rested_at = now
        endpoint.resting_until = max(endpoint.resting_until, now + min(asked_s, ASKED_REST_MOST_S))

    def idle_failed(self, endpoint: Endpoint) -> None:
        """An idle endpoint did not answer its probe; so many in a row take it out, as failed calls would."""
        if endpoint.ejected_since is not None:
            self._postpone_probe(endpoint)
            return
        endpoint.row.append(Failure("idle probe", (-1, -1), connection=True))
        if self._to_blame(endpoint):
            self._eject(endpoint, "connection")

    def _eject(self, endpoint: Endpoint, why: Out) -> None:
        now = self._clock.monotonic()
        endpoint.ejected_since, endpoint.out_for, endpoint.probe_pause_s = now, why, PROBE_FIRST_S
        endpoint.row.clear()
        self._postpone_probe(endpoint)
        remedy = "check its key, URL, model and quota" if why == "refusal" else "look at the judge's server"
        log.warning(
            "judge_endpoint_out", endpoint=endpoint.name, why=why, next=f"{remedy}; probed after {PROBE_FIRST_S:g} s"
        )
        if self.down_since() is not None:
            log.error("judge_down", judge=self.config.name, next="cohorts wait until their own deadlines")

    def _still_out(self, slot: Slot) -> None:
        """A probe failed. Calls that were on their way when the endpoint went out prove nothing new."""
        if slot.probe:
            self._postpone_probe(slot.endpoint)

    def _postpone_probe(self, endpoint: Endpoint) -> None:
        endpoint.probe_at = self._clock.monotonic() + endpoint.probe_pause_s
        endpoint.probe_pause_s = min(PROBE_MOST_S, endpoint.probe_pause_s * 2)

    def _to_blame(self, endpoint: Endpoint) -> bool:
        """Whether the row of failures speaks against the endpoint and not against one cohort or one member's answer."""
        row = list(endpoint.row)
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
    host = f"[{host}]" if ":" in host else host
    return f"{judge}#{number} ({host}:{parts.port})" if parts.port else f"{judge}#{number} ({host})"

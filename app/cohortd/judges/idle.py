"""Endpoints that nobody calls are asked `GET …/models` now and then, so that their health is known (R49)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import structlog

from cohortd.clock import Clock
from cohortd.judges.endpoints import PROBE_FIRST_S, Endpoint, JudgeEndpoints
from cohortd.judges.http import ProbeTransport, TransportFault

log = structlog.get_logger()

QUIET_S: Final = 30.0  # an endpoint that was heard within this time is not asked
LOOK_EVERY_S: Final = PROBE_FIRST_S
WITHIN_S: Final = 10.0


class IdleProber:
    """Asks idle endpoints whether they are there; any HTTP answer counts. Real calls go first: they are the probe."""

    def __init__(self, judges: Iterable[JudgeEndpoints], transport: ProbeTransport, clock: Clock) -> None:
        self._judges: Final = tuple(judges)
        self._transport = transport
        self._clock = clock

    async def run(self) -> None:
        """Look for ever, once a second."""
        while True:
            try:
                await self.look()
            except Exception as error:
                log.error("idle_probe_failed", error=type(error).__name__, next="tried again", exc_info=error)
            await self._clock.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """One probe of each idle endpoint that is due."""
        due = [(judge, e) for judge in self._judges for e in judge.endpoints if self._due(judge, e)]
        await asyncio.gather(*(self._probe(judge, endpoint) for judge, endpoint in due))

    def _due(self, judge: JudgeEndpoints, endpoint: Endpoint) -> bool:
        now = self._clock.monotonic()
        if judge.active_cohorts or endpoint.outstanding or now < endpoint.resting_until:
            return False  # its cohorts' calls say more than a list of models
        if endpoint.ejected_since is not None:
            return now >= endpoint.probe_at
        return endpoint.heard_at is None or bool(endpoint.row) or now >= endpoint.heard_at + QUIET_S

    async def _probe(self, judge: JudgeEndpoints, endpoint: Endpoint) -> None:
        try:
            await self._transport.get(endpoint.url + "/models", api_key=judge.config.api_key, timeout_s=WITHIN_S)
        except TransportFault:
            judge.idle_failed(endpoint)
        else:
            judge.heard(endpoint)

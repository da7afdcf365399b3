"""Endpoints that nobody calls are asked for their models; any HTTP answer counts (R49)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from cohortd.judges.endpoints import JudgeEndpoints
from cohortd.judges.http import AiohttpTransport, TransportFault
from cohortd.judges.idle import IdleProber
from tests.judges.support import API_KEY, judge
from tests.support.fake_clock import FakeClock, settle
from tests.support.judge_server import JudgeServer, refusing_url


@pytest.fixture
async def transport() -> AsyncIterator[AiohttpTransport]:
    transport = AiohttpTransport()
    yield transport
    await transport.close()


class Gate:
    """A transport for probes that answers or not, as the test says."""

    def __init__(self) -> None:
        self.up = True
        self.surprises = 0
        self.asked = 0

    async def get(self, url: str, *, api_key: str | None, timeout_s: float) -> int:
        """Answer, or not."""
        assert url.endswith("/models")
        self.asked += 1
        if self.asked <= self.surprises:
            raise RuntimeError("surprise")
        if not self.up:
            raise TransportFault("connect", "Refused")
        return 401


def prober(clock: FakeClock, transport: Gate) -> tuple[IdleProber, JudgeEndpoints]:
    """A prober of one endpoint."""
    endpoints = judge(["http://judge.test/v1"], clock)
    return IdleProber([endpoints], transport, clock), endpoints


@pytest.mark.rule("R49")
async def test_any_answer_to_the_list_of_models_counts(transport: AiohttpTransport) -> None:
    clock = FakeClock()
    async with JudgeServer() as server:  # it answers 404
        endpoints = judge([server.url], clock)
        await IdleProber([endpoints], transport, clock).look()
        assert [call.path for call in server.probes] == ["/v1/models"]
        assert server.probes[0].headers["authorization"] == f"Bearer {API_KEY}"
    assert endpoints.endpoints[0].heard_at == clock.monotonic()
    assert endpoints.down_since() is None


@pytest.mark.rule("R49")
async def test_a_judge_that_is_down_from_the_start_is_known_to_be_within_seconds(transport: AiohttpTransport) -> None:
    clock = FakeClock()
    with refusing_url() as url:
        endpoints = judge([url], clock)
        idle = IdleProber([endpoints], transport, clock)
        for _ in range(3):
            assert endpoints.down_since() is None
            await idle.look()
        assert endpoints.down_since() is not None


@pytest.mark.rule("R49")
async def test_an_outage_while_idle_is_probed_with_backoff_and_its_end_is_noticed() -> None:
    clock, gate = FakeClock(), Gate()
    idle, endpoints = prober(clock, gate)
    loop = asyncio.create_task(idle.run())
    await clock.advance(100)
    assert gate.asked == 4  # at once, and whenever nothing was heard for half a minute
    gate.up = False
    await clock.advance(100)
    assert endpoints.down_since() is not None
    assert gate.asked < 4 + 12
    gate.up = True
    await clock.advance(31)
    assert endpoints.down_since() is None
    loop.cancel()
    await settle()


@pytest.mark.rule("R49")
async def test_no_probe_disturbs_a_judge_that_works() -> None:
    clock, gate = FakeClock(), Gate()
    idle, endpoints = prober(clock, gate)
    with endpoints.working_for("cohort"):
        await idle.look()
    slot = await endpoints.acquire(None)
    await idle.look()
    endpoints.rest(slot, 60.0)
    slot.give_back()
    await idle.look()
    assert gate.asked == 0


@pytest.mark.rule("R49")
async def test_the_loop_outlives_a_surprise() -> None:
    clock, gate = FakeClock(), Gate()
    idle, endpoints = prober(clock, gate)
    gate.surprises = 1
    loop = asyncio.create_task(idle.run())
    await clock.advance(3)
    assert gate.asked == 2
    assert endpoints.endpoints[0].heard_at is not None
    loop.cancel()
    await settle()

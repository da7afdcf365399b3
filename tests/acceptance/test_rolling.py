"""A rolling restart: clients with Gym's rule lose no rollout, and no verdict is bought twice without need (R26, L6)."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import rewards_of
from tests.support.processes import MockJudge, Service, wait_until
from tests.support.requests import expected_group

SLOTS = 4


@pytest.mark.rule("R26", "L6", "R41")
async def test_a_rolling_restart_loses_no_rollout(database_url: str, tmp_path: Path) -> None:
    groups = [f"rolling-{number}" for number in range(16)]
    judge = MockJudge(tmp_path, "--latency-ms", "20")
    settings: dict[str, Any] = {"judge_concurrency": SLOTS, "drain_s": 2}
    service = await asyncio.to_thread(Service, tmp_path, database_url, judge.url, **settings)
    clients = asyncio.create_task(rewards_of(service.url, groups, spread_s=1.0))
    for share in (0.2, 0.4, 0.6):
        target = int(share * 8 * len(groups))
        await asyncio.to_thread(wait_until, lambda target=target: len(judge.calls()) >= target, "judge calls")
        service.send(signal.SIGTERM)
        assert await asyncio.to_thread(service.wait) in (0, 143, -15)
        service = await asyncio.to_thread(Service, tmp_path, database_url, judge.url, port=service.port, **settings)
    found = await clients
    assert found == {group: expected_group(group) for group in groups}
    # Verdicts in flight at SIGTERM were stored while the service drained: nothing was asked twice.
    assert len(judge.calls()) == 8 * len(groups)
    began = time.monotonic()
    assert service.stop() in (0, 143, -15)
    assert time.monotonic() - began < 2
    judge.kill()

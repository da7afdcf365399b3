"""One cohort that kills whoever judges it: it ends as internal, and the others go on (L7)."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import httpx
import pytest

from tests.support.clients import post_until_answered, rewards_of, scalar
from tests.support.judge_server import Call, JudgeServer, says
from tests.support.processes import Service
from tests.support.requests import expected_group, verify_body
from tests.support.service import verdict_text

SOUND = [f"sound-{number}" for number in range(6)]
POISON = "POISON"


@pytest.mark.rule("L7", "L6")
async def test_a_cohort_that_kills_its_process_ends_alone_and_the_others_get_their_rewards(
    database_url: str, tmp_path: Path
) -> None:
    running: list[Service] = []

    async def fate(call: Call) -> None:
        texts = call.json["metadata"]
        if POISON in texts["response_1"] + texts["response_2"]:
            os.kill(running[-1].pid, signal.SIGKILL)
            return
        await says(verdict_text(texts["response_1"], texts["response_2"]))(call)

    async with JudgeServer(fate) as judge:
        settings = {"num_rollouts_per_prompt": 4, "lease_s": 1}

        def start(port: int | None = None) -> Service:
            return Service(tmp_path, database_url, judge.url, port=port, wait=False, **settings)

        running.append(start())
        clients = asyncio.create_task(_everybody(running[0].url))
        status = "SELECT failure_kind FROM cohort WHERE group_id = 'poison'"
        async with asyncio.timeout(90):
            while await scalar(database_url, status) is None:
                if not running[-1].running:
                    running.append(start(running[0].port))
        found, masked = await clients
        assert found == {group: expected_group(group, 4) for group in SOUND}
        assert masked == {503}
        assert await scalar(database_url, status) == "internal"
        assert await scalar(database_url, "SELECT count(*) FROM cohort WHERE status = 'failed'") == 1
        assert 5 <= len(running) <= 7
        running[-1].kill()


async def _everybody(url: str) -> tuple[dict[str, list[float]], set[int]]:
    async def poison(client: httpx.AsyncClient, slot: int) -> int:
        body = verify_body("poison", slot, text=f"{POISON} {slot}")
        return (await post_until_answered(client, url, body, give_up_s=90)).status_code

    async with httpx.AsyncClient(timeout=60) as client:
        others = asyncio.create_task(rewards_of(url, SOUND, 4))
        statuses = await asyncio.gather(*(poison(client, slot) for slot in range(4)))
        return await others, set(statuses)

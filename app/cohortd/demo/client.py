"""The trainer's side of the demo: requests as NeMo Gym sends them, sent again whenever a connection drops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import httpx

from cohortd.demo.prompts import Prompt

RESEND_AFTER_S: Final = 0.1
GIVE_UP_S: Final = 60.0

Rewards = dict[tuple[str, int], float]


def verify_body(prompt: Prompt, rollout_index: int) -> dict[str, Any]:
    """The `POST /verify` body of one rollout."""
    content = [{"type": "output_text", "text": prompt.answers[rollout_index], "annotations": []}]
    return {
        "responses_create_params": {"input": prompt.input, "temperature": 1.0},
        "response": {
            "id": f"resp_{prompt.group_id}_{rollout_index}",
            "object": "response",
            "created_at": 1764550000.0,
            "model": "policy",
            "status": "completed",
            "output": [{"type": "message", "role": "assistant", "status": "completed", "content": content}],
        },
        "_ng_group_id": prompt.group_id,
        "_ng_group_attempt": 0,
        "_ng_rollout_index": rollout_index,
    }


class Trainer:
    """Sends every rollout of the prompts and collects their rewards; Gym's rule: no reply means send again."""

    def __init__(self, url: str) -> None:
        self._url: Final = f"{url}/verify"
        self.resent = 0  # requests whose connection dropped, however often

    async def rewards(self, prompts: tuple[Prompt, ...], on_reward: Callable[[], None] = lambda: None) -> Rewards:
        """The reward of each (group, slot), whatever happens to the service meanwhile."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        async with httpx.AsyncClient(timeout=GIVE_UP_S, limits=limits, trust_env=False) as client:

            async def one(prompt: Prompt, slot: int) -> tuple[tuple[str, int], float]:
                reward = await self._until_answered(client, verify_body(prompt, slot))
                on_reward()
                return (prompt.group_id, slot), reward

            sent = [one(prompt, slot) for prompt in prompts for slot in range(len(prompt.answers))]
            return dict(await asyncio.gather(*sent))

    async def _until_answered(self, client: httpx.AsyncClient, body: dict[str, Any]) -> float:
        dropped = False
        async with asyncio.timeout(GIVE_UP_S):
            while True:
                try:
                    reply = await client.post(self._url, json=body)
                except httpx.TransportError:
                    self.resent += not dropped
                    dropped = True
                    await asyncio.sleep(RESEND_AFTER_S)
                    continue
                reply.raise_for_status()
                found = reply.json()
                if found["mask_sample"]:
                    raise RuntimeError(f"a rollout was masked: {found['failure_reason']}")
                return float(found["reward"])

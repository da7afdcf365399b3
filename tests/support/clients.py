"""Clients as trainers have them, and a look into the database from outside."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import httpx
from sqlalchemy import text

from cohortd.store.engine import Database, Location
from tests.support.requests import verify_body

RESEND_AFTER_S = 0.05


async def post_until_answered(
    client: httpx.AsyncClient, url: str, body: dict[str, Any], *, give_up_s: float = 60.0
) -> httpx.Response:
    """Gym's rule: a dropped connection is sent again, whatever answer comes is final."""
    async with asyncio.timeout(give_up_s):
        while True:
            try:
                return await client.post(f"{url}/verify", json=body)
            except httpx.TransportError:
                await asyncio.sleep(RESEND_AFTER_S)


async def rewards_of(
    url: str, groups: list[str], n: int = 8, *, spread_s: float = 0.0, seed: int = 1, masked: bool = False
) -> dict[str, list[float]]:
    """The reward of every rollout of the groups, whatever happens to the service meanwhile.

    Members set out at random moments within `spread_s`; every reply is masked or none, as `masked` says.
    """
    rng = random.Random(seed)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=200)

    async def one(client: httpx.AsyncClient, group: str, slot: int, delay_s: float) -> float:
        await asyncio.sleep(delay_s)
        reply = await post_until_answered(client, url, verify_body(group, slot))
        assert reply.status_code == 200, reply.text
        assert reply.json()["mask_sample"] is masked
        reward: float = reply.json()["reward"]
        return reward

    keys = [(group, slot) for group in groups for slot in range(n)]
    async with httpx.AsyncClient(timeout=60, limits=limits) as client:
        rewards = await asyncio.gather(*(one(client, *key, rng.uniform(0, spread_s)) for key in keys))
    found: dict[str, list[float]] = {}
    for (group, _), reward in zip(keys, rewards, strict=True):
        found.setdefault(group, []).append(reward)
    return found


async def scalar(database_url: str, sql: str) -> Any:
    """The one value that a query gives."""
    database = Database(Location.parse(database_url))
    try:
        async with database.reader() as connection:
            return (await connection.execute(text(sql))).scalar()
    finally:
        await database.close()

"""What tests of hostile clients share: requests as bytes, and a service in which nobody else may wait."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx

from tests.support.service import Running, running

JSON = {"content-type": "application/json"}
PAIR = {"num_rollouts_per_prompt": 2}


async def post(app: Running, body: Any, path: str = "/verify", **headers: str) -> httpx.Response:
    """POST bytes as they are, or a value as JSON with lone surrogates escaped; a hang is a failure."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with asyncio.timeout(20):
        return await app.client.post(path, content=content, headers=JSON | headers)


async def count(app: Running, table: str = "member") -> int:
    """How many rows the table has."""
    return int((await app.rows(f"SELECT count(*) FROM {table}"))[0][0])


@contextlib.asynccontextmanager
async def busy(database_url: str, **settings: Any) -> AsyncIterator[Running]:
    """A service in which nobody else may wait: what it stores is answered with 429 at once, and the rest is refused."""
    async with running(database_url, settings=PAIR | {"max_waiting_requests": 1} | settings) as app:
        parked = app.later("the one that waits", 0)
        await app.stored(1)
        yield app
        parked.cancel()
        await asyncio.gather(parked, return_exceptions=True)

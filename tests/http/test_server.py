"""Real connections to a real process: clients that leave, SIGTERM, bodies that come in pieces (R17, R26, R60)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from cohortd.store.engine import Database, Location
from tests.support.processes import MockJudge, Service
from tests.support.requests import expected_group, verify_body

Start = Callable[..., Service]


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[MockJudge]:
    """A judge that answers at once."""
    process = MockJudge(tmp_path)
    yield process
    process.kill()


@pytest.fixture
def start(database_url: str, judge: MockJudge, tmp_path: Path) -> Iterator[Start]:
    """Start the service with settings; what was started is killed at the end."""
    started: list[Service] = []

    def _start(**settings: Any) -> Service:
        service = Service(tmp_path, database_url, settings.pop("judge_url", judge.url), **settings)
        started.append(service)
        return service

    yield _start
    for service in started:
        service.kill()


async def members(database_url: str, count: int) -> None:
    """Return when so many members are stored."""
    database = Database(Location.parse(database_url))
    try:
        async with asyncio.timeout(10):
            while True:
                async with database.reader() as connection:
                    if (await connection.execute(text("SELECT count(*) FROM member"))).scalar_one() >= count:
                        return
    finally:
        await database.close()


def request(body: dict[str, Any] | bytes, *, path: str = "/verify", close: bool = False) -> bytes:
    """The bytes of a POST."""
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(payload)}\r\n" + ("Connection: close\r\n" if close else "")
    return head.encode() + b"\r\n" + payload


async def connect(service: Service) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection."""
    return await asyncio.open_connection("127.0.0.1", service.port)


async def reply_to(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], Any]:
    """(status, headers, JSON) of the next reply on the connection."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers["content-length"]))
    return int(head[0].split()[1]), headers, json.loads(body)


async def send(service: Service, body: dict[str, Any] | bytes, **options: Any) -> tuple[int, dict[str, str], Any]:
    """POST on a connection of its own."""
    reader, writer = await connect(service)
    writer.write(request(body, close=True, **options))
    try:
        return await reply_to(reader)
    finally:
        writer.close()


@pytest.mark.rule("R17", "R10")
async def test_a_client_that_hangs_up_loses_nothing(start: Start, database_url: str) -> None:
    service = await asyncio.to_thread(start)
    for slot in range(7):
        _, writer = await connect(service)
        writer.write(request(verify_body("g", slot)))
        await members(database_url, slot + 1)
        writer.transport.abort()
    assert (await send(service, verify_body("g", 7)))[2]["reward"] == expected_group("g")[7]
    again = await asyncio.gather(*(send(service, verify_body("g", slot)) for slot in range(8)))
    assert [body["reward"] for _, _, body in again] == expected_group("g")


@pytest.mark.rule("R20")
async def test_one_connection_carries_one_rollout_after_the_other(start: Start) -> None:
    service = await asyncio.to_thread(start, num_rollouts_per_prompt=2)
    reader, writer = await connect(service)
    for group in ("a", "b", "c"):
        writer.write(request(verify_body(group, 0)))
        other = await send(service, verify_body(group, 1))
        status, _, body = await reply_to(reader)
        assert status == 200
        assert [body["reward"], other[2]["reward"]] == expected_group(group, 2)
    writer.write(request(b"{"))
    assert (await reply_to(reader))[0] == 422
    writer.write(request(verify_body("a", 0)))
    assert (await reply_to(reader))[2]["reward"] == expected_group("a", 2)[0]
    writer.close()


@pytest.mark.rule("R61")
async def test_a_body_in_pieces_is_read_whole_and_a_large_one_refused_early(start: Start) -> None:
    service = await asyncio.to_thread(start, num_rollouts_per_prompt=2, max_body_bytes=100_000)
    reader, writer = await connect(service)
    whole = request(verify_body("g", 0))
    for at in range(0, len(whole), 97):
        writer.write(whole[at : at + 97])
        await writer.drain()
    other = await send(service, verify_body("g", 1))
    assert [(await reply_to(reader))[2]["reward"], other[2]["reward"]] == expected_group("g", 2)
    writer.close()
    reader, writer = await connect(service)
    writer.write(
        b"POST /verify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 999999999\r\n\r\n{"
    )
    status, _, body = await reply_to(reader)
    assert (status, body["code"]) == (413, "body_too_large")
    writer.close()
    reader, writer = await connect(service)
    head = b"POST /verify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    writer.write(head + b"".join(b"4000\r\n" + b" " * 0x4000 + b"\r\n" for _ in range(8)))
    status, _, body = await reply_to(reader)
    assert (status, body["code"]) == (413, "body_too_large")
    writer.close()


@pytest.mark.rule("R26", "L6")
async def test_sigterm_closes_parked_requests_without_a_reply_and_within_a_second(
    start: Start, database_url: str
) -> None:
    service = await asyncio.to_thread(start)
    parked = [await connect(service) for _ in range(7)]
    for slot, (_, writer) in enumerate(parked):
        writer.write(request(verify_body("g", slot)))
    await members(database_url, 7)
    began = time.monotonic()
    service.send(signal.SIGTERM)
    for reader, _ in parked:
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 5) == b""
    assert time.monotonic() - began < 1.0
    assert await asyncio.to_thread(service.wait) in (0, 143, -15)
    again = await asyncio.to_thread(start, port=service.port)
    replies = await asyncio.gather(*(send(again, verify_body("g", slot)) for slot in range(8)))
    assert [body["reward"] for _, _, body in replies] == expected_group("g")


@pytest.mark.rule("R26", "R22")
async def test_sigterm_answers_503_where_that_is_asked_for(start: Start, database_url: str) -> None:
    service = await asyncio.to_thread(start, shutdown_reply="503")
    reader, writer = await connect(service)
    writer.write(request(verify_body("g", 0)))
    await members(database_url, 1)
    service.send(signal.SIGTERM)
    status, headers, body = await asyncio.wait_for(reply_to(reader), 5)
    assert (status, body["code"]) == (503, "shutting_down")
    assert headers["retry-after"]
    writer.close()
    assert await asyncio.to_thread(service.wait) in (0, 143, -15)


@pytest.mark.rule("R26")
async def test_sigterm_closes_a_comparison_without_a_reply(start: Start, tmp_path: Path) -> None:
    slow = await asyncio.to_thread(MockJudge, tmp_path, "--latency-ms", "60000")
    service = await asyncio.to_thread(start, judge_url=slow.url, drain_s=0)
    answers = [verify_body("g", slot)["response"] for slot in range(3)]
    reader, writer = await connect(service)
    writer.write(request({"conversation_history": [], "response_objs": answers}, path="/compare"))
    async with asyncio.timeout(10):
        while (await asyncio.to_thread(slow.stats))["calls"] < 3:
            pass
    service.send(signal.SIGTERM)
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()
    assert await asyncio.to_thread(service.wait) in (0, 143, -15)
    slow.kill()

"""Connections that mean harm, against a real process: heads, lengths, pipelines, and clients that leave at any point."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from cohortd.store.engine import Database, Location
from tests.support.processes import MockJudge, Service, wait_until
from tests.support.requests import expected_group, verify_body

HEAD = b"Host: localhost\r\nContent-Type: application/json\r\n"
REFUSED_HEAD = b"HTTP/1.1 400 "


@pytest.fixture
def service(database_url: str, tmp_path: Path) -> Iterator[Service]:
    """A service for groups of two, and a judge that answers at once."""
    judge = MockJudge(tmp_path)
    process = Service(tmp_path, database_url, judge.url, num_rollouts_per_prompt=2)
    yield process
    process.kill()
    judge.kill()


async def members(database_url: str, until: Callable[[int], bool] = lambda _: True) -> int:
    """How many members are stored, as soon as the condition holds."""
    database = Database(Location.parse(database_url))
    try:
        async with asyncio.timeout(10):
            while True:
                async with database.reader() as connection:
                    found = int((await connection.execute(text("SELECT count(*) FROM member"))).scalar_one())
                if until(found):
                    return found
    finally:
        await database.close()


async def connect(service: Service) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection."""
    return await asyncio.open_connection("127.0.0.1", service.port)


def post(body: Any, path: bytes = b"/verify", *, extra: bytes = b"") -> bytes:
    """The bytes of a whole request."""
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    return b"POST %s HTTP/1.1\r\n%s%sContent-Length: %d\r\n\r\n%s" % (path, HEAD, extra, len(payload), payload)


async def reply(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body) of the next reply on the connection, `100 Continue` passed over."""
    async with asyncio.timeout(20):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        if head[0].split()[1] == "100":
            return await reply(reader)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        return int(head[0].split()[1]), headers, await reader.readexactly(int(headers["content-length"]))


async def said(service: Service, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """What the service says first to these bytes."""
    reader, writer = await connect(service)
    writer.write(request)
    try:
        return await reply(reader)
    finally:
        writer.transport.abort()


def waiting(service: Service) -> int:
    """How many requests wait for their cohort."""
    return int(httpx.get(f"{service.url}/health/ready").json()["waiting"])


def unharmed(service: Service) -> None:
    """It is ready, nobody waits, and nothing went wrong inside it."""
    ready = httpx.get(f"{service.url}/health/ready").json()
    assert (ready["status"], ready["waiting"], ready["judging"]) == ("ready", 0, 0)
    lines = [json.loads(line) for line in service.err.read_text().splitlines()]
    assert [line for line in lines if line["level"] == "error"] == []


SEED = b"POST /seed_session HTTP/1.1\r\n" + HEAD
MODE = b"GET /reverify_mode HTTP/1.1\r\nHost: localhost\r\n\r\n"
NO_HTTP: dict[str, bytes] = {
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a method in lower case": b"get /reverify_mode HTTP/1.1\r\n" + HEAD + b"\r\n",
    "a path of other bytes": b"GET /\xc3\xa9 HTTP/1.1\r\n" + HEAD + b"\r\n",
    "a query of other bytes": b"GET /reverify_mode?\xff HTTP/1.1\r\n" + HEAD + b"\r\n",
    "two lengths": SEED + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
    "a length and chunks": SEED + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "a negative length": SEED + b"Content-Length: -1\r\n\r\n{}",
    "a length with a sign": SEED + b"Content-Length: +2\r\n\r\n{}",
    "a length in hexadecimal": SEED + b"Content-Length: 0x2\r\n\r\n{}",
    "a length beyond 64 bits": SEED + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n{}",
    "a chunk of no size": SEED + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "a chunk of negative size": SEED + b"Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
    "another transfer encoding": SEED + b"Transfer-Encoding: gzip\r\n\r\n{}",
    "NUL in a header": b"GET /reverify_mode HTTP/1.1\r\nHost: local\x00host\r\n\r\n",
    "a folded header": b"GET /reverify_mode HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n",
    "a space before the colon": b"GET /reverify_mode HTTP/1.1\r\nHost : localhost\r\n\r\n",
    "bare line feeds": b"GET /reverify_mode HTTP/1.1\nHost: localhost\n\n",
    "a head of a megabyte": b"GET /reverify_mode HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 2**20,
    "a path of a megabyte": b"GET /" + b"y" * 2**20,
    "headers without an end": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(50_000)),
}  # fmt: skip

ODD: dict[str, tuple[bytes, int, bytes]] = {
    "no host": (b"GET /reverify_mode HTTP/1.1\r\n\r\n", 403, b"forbidden"),
    "HTTP/1.0": (b"GET /reverify_mode HTTP/1.0\r\nHost: localhost\r\n\r\n", 200, b"unsupported"),
    "two hosts": (b"GET /reverify_mode HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 403, b"forbidden"),
    "another host in the line": (b"GET http://localhost/reverify_mode HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403, b"forbidden"),
    "options of all": (b"OPTIONS * HTTP/1.1\r\n" + HEAD + b"\r\n", 404, b"not_found"),
    "options": (b"OPTIONS /verify HTTP/1.1\r\n" + HEAD + b"\r\n", 405, b"method_not_allowed"),
    "trace": (b"TRACE /verify HTTP/1.1\r\n" + HEAD + b"Cookie: CANARY\r\n\r\n", 405, b"method_not_allowed"),
    "delete": (b"DELETE /seed_session HTTP/1.1\r\n" + HEAD + b"\r\n", 405, b"method_not_allowed"),
    "put": (b"PUT /campaigns/a/compare HTTP/1.1\r\n" + HEAD + b"\r\n", 405, b"method_not_allowed"),
    "a line break in the path": (b"GET /x%0d%0aSet-Cookie:%20a=b HTTP/1.1\r\n" + HEAD + b"\r\n", 404, b"not_found"),
    "a line break in the campaign": (post({}, b"/campaigns/x%0d%0aX-Evil:%201/verify"), 422, b"invalid_coordinates"),
    "another media type": (post({}).replace(b"application/json", b"\xff\xfe"), 415, b"unsupported_media_type"),
    "an upgrade": (post({}, extra=b"Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n"), 422, b"invalid"),
    "more than it says": (post(b"{}", b"/seed_session") + b"\r\n", 200, b"{}"),
    "a trailer": (SEED + b"Transfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\nX: y\r\n\r\n", 200, b"{}"),
    "an expectation": (post(b"{}", b"/seed_session", extra=b"Expect: 100-continue\r\n"), 200, b"{}"),
    "a length of 2^64-1": (SEED + b"Content-Length: 18446744073709551615\r\n\r\n{}", 413, b"body_too_large"),
    "33 MB": (post(b" " * (33 * 2**20)), 413, b"body_too_large"),
    "33 MB in chunks": (
        b"POST /verify HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + (b"100000\r\n" + b" " * 2**20 + b"\r\n") * 33,
        413, b"body_too_large",
    ),
}  # fmt: skip


@pytest.mark.rule("R25", "R61", "R62")
async def test_what_is_no_request_is_refused_and_what_is_an_odd_one_is_answered(
    service: Service, database_url: str
) -> None:
    for name, request in NO_HTTP.items():
        status, headers, body = await said(service, request)
        assert status == 400, name
        assert headers["connection"] == "close", name
        assert len(body) < 100, name
    for name, (request, wanted, part) in ODD.items():
        status, headers, body = await said(service, request)
        assert (status, part in body) == (wanted, True), (name, status, body)
        assert not {"set-cookie", "x-evil", "server"} & headers.keys(), name
        assert b"CANARY" not in body
    assert await members(database_url) == 0
    unharmed(service)


@pytest.mark.rule("R17", "R20")
async def test_requests_in_one_pipe_are_answered_in_their_order(service: Service, database_url: str) -> None:
    reader, writer = await connect(service)
    writer.write(post(verify_body("g", 0)) + post(b"{", b"/seed_session") + MODE + post(verify_body("g", 0)) + post({}))
    await members(database_url, lambda found: found == 1)
    assert (await said(service, post(verify_body("g", 1))))[0] == 200
    found = [await reply(reader) for _ in range(5)]
    assert [status for status, _, _ in found] == [200, 422, 200, 200, 422]
    rewards = [json.loads(found[at][2])["reward"] for at in (0, 3)]
    assert rewards == [expected_group("g", 2)[0]] * 2
    writer.write(MODE * 500)
    assert {(await reply(reader))[2] for _ in range(500)} == {b'"unsupported"'}
    writer.close()
    unharmed(service)


@pytest.mark.rule("R10", "R17", "R60")
async def test_a_client_may_leave_at_any_byte(service: Service, database_url: str) -> None:
    whole = post(verify_body("g", 0))
    head = whole.index(b"\r\n\r\n") + 4
    for path in (b"/verify", b"/compare", b"/seed_session", b"/aggregate_metrics", b"/campaigns/a/verify"):
        request = whole.replace(b"/verify", path, 1)
        for end in (1, 20, head - 1, head, head + 1, len(request) - 20):
            for orderly in (True, False):
                reader, writer = await connect(service)
                writer.write(request[:end])
                await writer.drain()
                if orderly:
                    writer.write_eof()
                    assert await asyncio.wait_for(reader.read(), 10) == b""
                writer.transport.abort()
    assert (await said(service, MODE))[0] == 200
    assert await members(database_url) == 0
    # from here on it is stored, and whoever leaves only stops waiting
    for orderly in (True, False):
        reader, writer = await connect(service)
        writer.write(whole + MODE)
        await asyncio.to_thread(wait_until, lambda: waiting(service) == 1, "its wait")
        assert await members(database_url) == 1
        if orderly:
            writer.write_eof()
            assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.transport.abort()
        await asyncio.to_thread(wait_until, lambda: waiting(service) == 0, "the end of its wait")
    assert json.loads((await said(service, post(verify_body("g", 1))))[2])["reward"] == expected_group("g", 2)[1]
    # a reply that nobody reads
    for _ in range(20):
        _, writer = await connect(service)
        writer.write(whole * 20)
        await writer.drain()
        writer.transport.abort()
    assert json.loads((await said(service, whole))[2])["reward"] == expected_group("g", 2)[0]
    assert await members(database_url) == 2
    unharmed(service)


@pytest.mark.rule("R10", "R61")
async def test_a_length_that_lies_stores_nothing_but_what_it_covers(service: Service, database_url: str) -> None:
    payload = json.dumps(verify_body("g", 0)).encode()
    for length in (0, 1, len(payload) - 1):
        request = post(payload).replace(b"Content-Length: %d" % len(payload), b"Content-Length: %d" % length)
        assert (await said(service, request))[0] in (400, 422)
    assert await members(database_url) == 0
    reader, writer = await connect(service)
    writer.write(
        post(payload).replace(b"Content-Length: %d" % len(payload), b"Content-Length: %d" % (len(payload) + 1))
    )
    assert (await said(service, MODE))[0] == 200
    assert await members(database_url) == 0
    writer.write(b"\n")
    await members(database_url, lambda found: found == 1)
    assert (await said(service, post(verify_body("g", 1))))[0] == 200
    assert json.loads((await reply(reader))[2])["reward"] == expected_group("g", 2)[0]
    writer.close()
    unharmed(service)

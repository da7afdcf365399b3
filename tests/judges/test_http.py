"""One HTTP try: bounded in time and bytes, faults of a closed set, nothing hidden (R32, R45)."""

from __future__ import annotations

import asyncio
import base64
import socket
import tracemalloc
import zlib
from collections.abc import AsyncIterator

import pytest

from cohortd.judges.http import AiohttpTransport, Reply, TransportFault
from tests.support import judge_server as server
from tests.support.judge_server import JudgeServer

LIMIT = 8 * 2**20


@pytest.fixture
async def transport() -> AsyncIterator[AiohttpTransport]:
    transport = AiohttpTransport()
    yield transport
    await transport.close()


async def post(transport: AiohttpTransport, url: str, **limits: object) -> Reply:
    """A call with roomy limits but those that are named."""
    known = {"api_key": None, "timeout_s": 20.0, "connect_s": 5.0, "max_bytes": LIMIT} | limits
    return await transport.post(url, b"{}", **known)  # type: ignore[arg-type]


async def fault(transport: AiohttpTransport, url: str, **limits: object) -> str:
    """The kind of fault that a call ends in."""
    with pytest.raises(TransportFault) as caught:
        await post(transport, url, **limits)
    return caught.value.kind


def zip_bomb(size: int) -> bytes:
    """Zeros, compressed a thousandfold."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(bytes(2**20)) for _ in range(size // 2**20)) + packer.flush()


@pytest.mark.rule("R61")
@pytest.mark.parametrize(
    "fate",
    [
        pytest.param(server.huge(300 * 2**20, announced=True), id="announced"),
        pytest.param(server.huge(300 * 2**20, announced=False), id="chunked"),
        pytest.param(server.raw(zip_bomb(300 * 2**20), headers="Content-Encoding: gzip\r\n"), id="zip bomb"),
    ],
)
async def test_a_body_of_300_mb_is_given_up_without_being_held(fate: server.Fate, transport: AiohttpTransport) -> None:
    async with JudgeServer(fate) as judge_server:
        tracemalloc.start()
        try:
            assert await fault(transport, judge_server.url) == "oversized"
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        await judge_server.clients_leave()
        assert judge_server.sent < 3 * LIMIT  # the connection was closed, not drained
    assert peak < 3 * LIMIT


@pytest.mark.rule("R61")
async def test_a_body_of_exactly_the_limit_is_taken(transport: AiohttpTransport) -> None:
    async with JudgeServer(server.raw(b"x" * 1000)) as judge_server:
        assert len((await post(transport, judge_server.url, max_bytes=1000)).body) == 1000
        assert await fault(transport, judge_server.url, max_bytes=999) == "oversized"


@pytest.mark.rule("R61")
async def test_a_length_over_the_limit_is_believed(transport: AiohttpTransport) -> None:
    async def announced(call: server.Call) -> None:
        await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (LIMIT + 1))
        await call.server.gate.wait()

    async with JudgeServer(announced) as judge_server:
        assert await fault(transport, judge_server.url, timeout_s=10.0) == "oversized"


@pytest.mark.rule("R32")
async def test_a_trickle_does_not_outrun_the_total_time(transport: AiohttpTransport) -> None:
    async with JudgeServer(server.drip(0.1)) as judge_server:
        async with asyncio.timeout(2.0):
            assert await fault(transport, judge_server.url, timeout_s=0.25) == "timeout"
        await judge_server.clients_leave()


@pytest.mark.rule("R32")
async def test_connecting_has_its_own_limit(transport: AiohttpTransport) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(4)]  # fill the backlog: later connections are not answered
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        try:
            async with asyncio.timeout(2.0):
                url = f"http://127.0.0.1:{address[1]}/v1"
                assert await fault(transport, url, connect_s=0.2) == "connect"
                for connect_s in (0.2, 5.0):  # what ends the whole call is no failure to connect
                    assert await fault(transport, url, connect_s=connect_s, timeout_s=0.2) == "timeout"
        finally:
            for one in waiting:
                one.close()


@pytest.mark.rule("R45")
async def test_a_post_is_sent_once_even_when_a_kept_connection_turns_out_closed(transport: AiohttpTransport) -> None:
    async with JudgeServer(server.verdict(), server.close) as judge_server:
        assert (await post(transport, judge_server.url)).status == 200
        assert await fault(transport, judge_server.url) == "closed"
        assert len(judge_server.calls) == 2


@pytest.mark.rule("R45")
async def test_connections_are_kept(transport: AiohttpTransport) -> None:
    async with JudgeServer() as judge_server:
        for _ in range(5):
            await post(transport, judge_server.url)
        assert len({id(call.writer) for call in judge_server.calls}) == 1


@pytest.mark.rule("R45")
async def test_a_redirect_is_an_answer_and_is_not_followed(transport: AiohttpTransport) -> None:
    async with JudgeServer() as other:
        there = server.raw(b"", number=307, headers=f"Location: {other.url}/responses\r\n")
        async with JudgeServer(there) as judge_server:
            assert (await post(transport, judge_server.url)).status == 307
        assert other.calls == []


async def test_no_cookie_is_kept_and_no_proxy_is_taken_from_the_environment(
    transport: AiohttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with JudgeServer(server.raw(b"{}", headers="Set-Cookie: a=b\r\n")) as judge_server:
        named = judge_server.url.replace("127.0.0.1", "localhost")  # jars pass over addresses
        await post(transport, named)
        await post(transport, named)
        assert "cookie" not in judge_server.calls[1].headers


@pytest.mark.parametrize(
    ("user", "api_key", "header"),
    [
        ("", None, None),
        ("", "KEY", "Bearer KEY"),
        ("me:p%40ss@", None, "Basic " + base64.b64encode(b"me:p@ss").decode()),
        ("me:p%40ss@", "KEY", "Bearer KEY"),
    ],
)
async def test_credentials_go_into_the_header_and_nowhere_else(
    user: str, api_key: str | None, header: str | None, transport: AiohttpTransport
) -> None:
    async with JudgeServer() as judge_server:
        await post(transport, judge_server.url.replace("//", f"//{user}") + "/responses", api_key=api_key)
        call = judge_server.calls[0]
    assert call.headers.get("authorization") == header
    assert call.path == "/v1/responses"
    assert call.headers["content-type"] == "application/json"
    assert "user-agent" not in call.headers


async def test_a_fault_names_the_exception_and_never_the_url(transport: AiohttpTransport) -> None:
    with server.refusing_url() as url, pytest.raises(TransportFault) as caught:
        await post(transport, url.replace("//", "//user:SECRET@"))
    assert "SECRET" not in str(caught.value)
    assert caught.value.connection


@pytest.mark.parametrize(
    ("url", "kind"),
    [("http://[::bad/v1", "other"), ("http://judge.invalid/v1", "connect"), ("gopher://127.0.0.1/v1", "other")],
)
async def test_a_wrong_url_is_a_fault_and_no_exception_of_a_library(
    url: str, kind: str, transport: AiohttpTransport
) -> None:
    assert await fault(transport, url) == kind


async def test_tls_with_a_server_that_speaks_none_is_a_fault_of_the_connection(transport: AiohttpTransport) -> None:
    async def plain(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    listening = await asyncio.start_server(plain, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        assert await fault(transport, f"https://127.0.0.1:{port}/v1") in ("tls", "connect")


@pytest.mark.rule("R48")
async def test_a_cancelled_call_is_aborted(transport: AiohttpTransport) -> None:
    async with JudgeServer(server.hang) as judge_server:
        task = asyncio.create_task(post(transport, judge_server.url))
        await judge_server.calls_arrive(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await judge_server.clients_leave()


@pytest.mark.rule("R48")
async def test_hundreds_of_cancelled_calls_leave_nothing_behind(transport: AiohttpTransport) -> None:
    async with JudgeServer(server.hang) as judge_server:
        tasks = [asyncio.create_task(post(transport, judge_server.url)) for _ in range(200)]
        await judge_server.calls_arrive(100)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await judge_server.clients_leave()
        judge_server.gate.set()
        assert (await post(transport, judge_server.url)).status == 200

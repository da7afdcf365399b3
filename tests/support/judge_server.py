"""A judge on a real loopback socket that does to each call what the test says, byte by byte if need be."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

VERDICT = '{"score_1": 4, "score_2": 2, "ranking": 2}'
THEIR_WORDS = "the judge's own words"
CHUNK = 64 * 1024


@dataclass
class Call:
    """A request that arrived, and the way back."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    writer: asyncio.StreamWriter
    server: JudgeServer

    @property
    def json(self) -> Any:
        """The body as a value."""
        return json.loads(self.body)

    @property
    def chat(self) -> bool:
        """Whether it came in the chat format."""
        return self.path.endswith("/chat/completions")

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()


Fate = Callable[[Call], Awaitable[None]]


class JudgeServer:
    """`async with JudgeServer(fate, fate, …)`: the nth call meets the nth fate, later ones the last."""

    def __init__(self, *fates: Fate) -> None:
        self.fates = list(fates) or [verdict()]
        self.calls: list[Call] = []
        self.probes: list[Call] = []
        self.open = 0
        self.sent = 0  # bytes of huge bodies that went out
        self.arrived = asyncio.Event()
        self.left = asyncio.Event()  # a client went away
        self.gate = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> JudgeServer:
        """Listen."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close everything."""
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def calls_arrive(self, count: int) -> None:
        """Return when so many calls have arrived."""
        async with asyncio.timeout(10):
            while len(self.calls) < count:
                self.arrived.clear()
                await self.arrived.wait()

    async def clients_leave(self) -> None:
        """Return when no connection is open."""
        async with asyncio.timeout(10):
            while self.open:
                self.left.clear()
                await self.left.wait()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.open += 1
        try:
            while (call := await self._read(reader, writer)) is not None:
                await self._meet(call, reader)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client went away, or the test is over
        finally:
            self.open -= 1
            self.left.set()
            self._tasks.discard(task)
            with contextlib.suppress(OSError):
                writer.close()

    async def _meet(self, call: Call, reader: asyncio.StreamReader) -> None:
        if call.method == "GET":
            self.probes.append(call)
            await status(404)(call)
            return
        fate = self.fates[min(len(self.calls), len(self.fates) - 1)]
        self.calls.append(call)
        self.arrived.set()
        meeting = asyncio.ensure_future(fate(call))
        leaving = asyncio.ensure_future(reader.read(1))  # nobody pipelines: a byte or its absence is a client that left
        try:
            await asyncio.wait({meeting, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not meeting.done():
                raise ConnectionError
            meeting.result()
        finally:
            meeting.cancel()
            leaving.cancel()
            await asyncio.gather(meeting, leaving, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Call | None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        return Call(method, path, headers, body, writer, self)


# -- what a judge says


def reply_object(call: Call, text: str | None, **fields: Any) -> dict[str, Any]:
    """A completed reply in the call's format; `fields` replace what it says at the top (chat: `finish_reason` too)."""
    if call.chat:
        choice = {"index": 0, "finish_reason": fields.pop("finish_reason", "stop")}
        message = {"role": "assistant", "content": text} | fields.pop("message", {})
        usage = {"prompt_tokens": 100, "completion_tokens": 20}
        return {"model": "scripted", "choices": [choice | {"message": message}], "usage": usage} | fields
    content = [] if text is None else [{"type": "output_text", "text": text}]
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "thinking"}]}
    output = [thought, {"type": "message", "role": "assistant", "content": content}]
    usage = {"input_tokens": 100, "output_tokens": 20}
    return {"model": "scripted", "status": "completed", "output": output, "usage": usage} | fields


def says(text: str | None, **fields: Any) -> Fate:
    """A completed answer with this text."""

    async def fate(call: Call) -> None:
        await _whole(call, 200, json.dumps(reply_object(call, text, **fields)).encode())

    return fate


def verdict() -> Fate:
    """A good verdict: 4, 2, 2."""
    return says(VERDICT)


def exhausted(text: str | None = "So far") -> Fate:
    """An answer that ran out of output tokens."""

    async def fate(call: Call) -> None:
        fields: dict[str, Any] = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        reply = reply_object(call, text, **({"finish_reason": "length"} if call.chat else fields))
        await _whole(call, 200, json.dumps(reply).encode())

    return fate


def without_status() -> Fate:
    """A good verdict in a reply that lacks `status`."""

    async def fate(call: Call) -> None:
        reply = reply_object(call, VERDICT)
        reply.pop("status", None)
        await _whole(call, 200, json.dumps(reply).encode())

    return fate


def status(number: int, *, error: Any = None, retry_after: str | None = None) -> Fate:
    """An HTTP status with an error object."""
    extra = "" if retry_after is None else f"Retry-After: {retry_after}\r\n"
    body = json.dumps({"error": error if error is not None else {"message": THEIR_WORDS, "type": "server_error"}})

    async def fate(call: Call) -> None:
        await _whole(call, number, body.encode(), extra)

    return fate


def raw(body: bytes, *, number: int = 200, headers: str = "") -> Fate:
    """Any body with its right length."""

    async def fate(call: Call) -> None:
        await _whole(call, number, body, headers)

    return fate


def html() -> Fate:
    """What a proxy says in front of a dead judge."""
    return raw(b"<html><body>Bad gateway</body></html>", headers="Content-Type: text/html\r\n")


# -- what a connection does


async def reset(call: Call) -> None:
    """A TCP reset instead of a reply."""
    call.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    call.writer.transport.abort()


async def close(call: Call) -> None:
    """The connection ends in order, before any byte of a reply."""
    call.writer.close()


async def cut(call: Call) -> None:
    """Half of the announced length, then the end."""
    body = json.dumps(reply_object(call, VERDICT)).encode()
    await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body[: len(body) // 2])
    call.writer.close()


async def cut_chunked(call: Call) -> None:
    """A chunk, and the end without the last one."""
    body = json.dumps(reply_object(call, VERDICT)).encode()
    await call.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(body), body))
    call.writer.close()


async def hang(call: Call) -> None:
    """No reply, until the server's gate opens."""
    await call.server.gate.wait()
    await verdict()(call)


def drip(every_s: float) -> Fate:
    """One byte after the other, each within any limit between bytes."""

    async def fate(call: Call) -> None:
        body = json.dumps(reply_object(call, VERDICT)).encode()
        await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        for at in range(len(body)):
            await call.send(body[at : at + 1])
            await asyncio.sleep(every_s)

    return fate


def huge(size: int, *, announced: bool) -> Fate:
    """A body of so many bytes, made as it is sent."""

    async def fate(call: Call) -> None:
        how = b"Content-Length: %d" % size if announced else b"Transfer-Encoding: chunked"
        await call.send(b"HTTP/1.1 200 OK\r\n" + how + b"\r\n\r\n")
        block = b"x" * CHUNK
        for _ in range(size // CHUNK):
            await call.send(block if announced else b"%x\r\n%s\r\n" % (CHUNK, block))
            call.server.sent += CHUNK
        await call.send(b"" if announced else b"0\r\n\r\n")

    return fate


def gzipped(*, spoil: Callable[[bytes], bytes] = lambda packed: packed, text: str = VERDICT) -> Fate:
    """A compressed reply, spoilt if the test says so."""

    async def fate(call: Call) -> None:
        packed = spoil(gzip.compress(json.dumps(reply_object(call, text)).encode()))
        await _whole(call, 200, packed, "Content-Encoding: gzip\r\n")

    return fate


async def no_http(call: Call) -> None:
    """Bytes that are no HTTP."""
    await call.send(b"\x00\x01\x02 hello\r\n\r\n")
    call.writer.close()


async def _whole(call: Call, number: int, body: bytes, headers: str = "") -> None:
    head = f"HTTP/1.1 {number} Scripted\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    await call.send(head.encode() + body)


@contextlib.contextmanager
def refusing_url() -> Iterator[str]:
    """A URL whose port is taken but refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/v1"

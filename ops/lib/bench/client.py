"""A load client on raw sockets: cheap enough to share two cores with what it measures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import httptools
import msgspec

RESEND_AFTER_S: Final = 0.5  # 1,600 clients that hurry would keep the service from starting
GIVE_UP_S: Final = 60.0


class Reply(msgspec.Struct):
    """What a benchmark reads of a `/verify` reply."""

    reward: float | None = None
    mask_sample: bool = False


_decode: Final = msgspec.json.Decoder(Reply).decode


class Connection(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._waiting: asyncio.Future[tuple[int, bytes]] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request that waits."""
        self._transport = None
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionResetError("closed before the reply"))

    def data_received(self, data: bytes) -> None:
        """Feed the parser."""
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        """A part of the reply's body."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The reply is whole."""
        body = b"".join(self._body)
        self._body.clear()
        if not self._parser.should_keep_alive():
            self.close()
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result((self._parser.get_status_code(), body))

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        return self._transport is not None

    def send(self, request: bytes) -> asyncio.Future[tuple[int, bytes]]:
        """Write the request; the future is its (status, body)."""
        if self._transport is None:
            raise ConnectionResetError("closed")
        self._parser = httptools.HttpResponseParser(self)
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._waiting

    def close(self) -> None:
        """Close it."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None


class Client:
    """Connections to one server, kept and used again; every time is of `time.perf_counter`."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.hostname is None:
            raise ValueError(f"{url!r} names no host")
        self._host: Final = parts.hostname
        self._port: Final = parts.port or 80
        self._head: Final = (
            f"POST {parts.path.rstrip('/')}/verify HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            "Content-Type: application/json\r\nAccept: application/json\r\nContent-Length: "
        ).encode()
        self._idle: Final[list[Connection]] = []
        self._all: Final[list[Connection]] = []
        self.dropped = 0  # requests sent again because their connection dropped

    async def verify(self, body: bytes, on_sent: Callable[[float], None]) -> Reply:
        """The reply to one rollout; a dropped connection is sent again, as Gym's client does."""
        request = self._head + b"%d\r\n\r\n" % len(body) + body
        give_up_at = time.monotonic() + GIVE_UP_S
        while True:
            try:
                connection = await self._take()
                waiting = connection.send(request)
                on_sent(time.perf_counter())
                status, reply = await waiting
            except OSError as error:
                self.dropped += 1
                if time.monotonic() > give_up_at:
                    raise RuntimeError(f"{self._host}:{self._port} did not answer for {GIVE_UP_S:.0f} s") from error
                await asyncio.sleep(RESEND_AFTER_S)
                continue
            self._idle.append(connection)
            if status != 200:
                raise RuntimeError(f"HTTP {status}: {reply[:300].decode(errors='replace')}")
            return _decode(reply)

    async def _take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        _, connection = await asyncio.get_running_loop().create_connection(Connection, self._host, self._port)
        self._all.append(connection)
        return connection

    def close(self) -> None:
        """Close every connection."""
        for connection in self._all:
            connection.close()

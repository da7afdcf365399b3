"""One HTTP try of a judge: bounded in time and bytes, with a closed set of faults and no hidden retries."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from typing import Final, Literal, NoReturn, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

import aiohttp
import yarl
from aiohttp.http_exceptions import ContentEncodingError

FaultKind = Literal["connect", "tls", "reset", "closed", "cut", "timeout", "oversized", "undecodable", "other"]

# What speaks of the way to the endpoint, and not of this one request (R49).
CONNECTION_FAULTS: Final[frozenset[FaultKind]] = frozenset({"connect", "tls", "reset", "closed", "cut"})

# Shorter than the five seconds after which common model servers close an idle connection: a call that is sent into a
# closing connection is a lost try.
KEEPALIVE_S: Final = 4.0
_HEADERS: Final = {"Content-Type": "application/json", "Accept": "application/json"}


class TransportFault(Exception):
    """The try brought no whole reply; `kind` says how it ended, `error` which exception it was."""

    def __init__(self, kind: FaultKind, error: str) -> None:
        super().__init__(f"{kind}: {error}")
        self.kind: Final = kind
        self.error: Final = error

    @property
    def connection(self) -> bool:
        """Whether it speaks of the way to the endpoint."""
        return self.kind in CONNECTION_FAULTS


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply."""

    status: int
    retry_after: str | None
    body: bytes


class JudgeTransport(Protocol):
    """Two methods, so that tests need no sockets."""

    async def post(
        self, url: str, body: bytes, *, api_key: str | None, timeout_s: float, connect_s: float, max_bytes: int
    ) -> Reply:
        """Send the body; the whole reply, or TransportFault."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class ProbeTransport(Protocol):
    """What the probe of idle endpoints needs."""

    async def get(self, url: str, *, api_key: str | None, timeout_s: float) -> int:
        """The status of the answer, whose body is not read; or TransportFault."""
        ...


class Transport(JudgeTransport, ProbeTransport, Protocol):
    """Both: what a service needs."""


class AiohttpTransport:
    """Real HTTP. Limits are ours, in front of it: the pool itself is unbounded, and keeps no cookies or proxies."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._targets: dict[tuple[str, str | None], tuple[yarl.URL, dict[str, str]]] = {}
        self._timeouts: dict[float, aiohttp.ClientTimeout] = {}

    async def post(
        self, url: str, body: bytes, *, api_key: str | None, timeout_s: float, connect_s: float, max_bytes: int
    ) -> Reply:
        """Send the body; the whole reply, or TransportFault with what went wrong."""
        try:
            async with asyncio.timeout(timeout_s):
                target, headers = self._target(url, api_key)
                async with self._open().post(
                    target,
                    data=body,
                    headers=headers,
                    timeout=self._limits(connect_s, timeout_s),
                    allow_redirects=False,
                ) as response:
                    content = await _read(response, max_bytes)
                    return Reply(response.status, response.headers.get("Retry-After"), content)
        except (aiohttp.ClientError, OSError, ValueError, TimeoutError) as error:
            _fault(error)

    async def get(self, url: str, *, api_key: str | None, timeout_s: float) -> int:
        """The status of the answer, whose body is not read; or TransportFault."""
        try:
            async with asyncio.timeout(timeout_s):
                target, headers = self._target(url, api_key)
                response = await self._open().get(target, headers=headers, timeout=_NO_LIMITS, allow_redirects=False)
                response.close()
                return response.status
        except (aiohttp.ClientError, OSError, ValueError, TimeoutError) as error:
            _fault(error)

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60, keepalive_timeout=KEEPALIVE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("User-Agent",),
                raise_for_status=False,
                trust_env=False,
                auto_decompress=True,
            )
        return self._session

    def _target(self, url: str, api_key: str | None) -> tuple[yarl.URL, dict[str, str]]:
        """The URL and headers of an endpoint, put together once."""
        found = self._targets.get((url, api_key))
        if found is None:
            plain, headers = _with_credentials(url, api_key)
            found = self._targets[url, api_key] = (yarl.URL(plain), headers)
        return found

    def _limits(self, connect_s: float, timeout_s: float) -> aiohttp.ClientTimeout:
        """Looking up, connecting and TLS in `connect_s`; the whole call is bounded by us, which the clients do not do."""
        if connect_s >= timeout_s:
            return _NO_LIMITS
        found = self._timeouts.get(connect_s)
        if found is None:
            found = self._timeouts[connect_s] = aiohttp.ClientTimeout(total=None, connect=connect_s)
        return found


_NO_LIMITS: Final = aiohttp.ClientTimeout(total=None)


async def _read(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """The decompressed body, given up as soon as it is too long."""
    declared = response.content_length
    chunks, size = [], 0
    if declared is None or declared <= max_bytes:
        async for chunk in response.content.iter_any():
            size += len(chunk)
            if size > max_bytes:
                break
            chunks.append(chunk)
        else:
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
    response.close()
    raise TransportFault("oversized", f"more than {max_bytes} bytes")


def _fault(error: Exception) -> NoReturn:
    """Raise the fault that the exception stands for; its words may hold a URL, so only its name is kept."""
    raise TransportFault(_kind(error), type(error).__name__) from error


def _kind(error: Exception) -> FaultKind:
    match error:
        case aiohttp.ConnectionTimeoutError():
            return "connect"
        case TimeoutError():
            return "timeout"
        case aiohttp.ClientSSLError():
            return "tls"
        case aiohttp.ClientConnectorError():
            return "connect"
        case aiohttp.ServerDisconnectedError():
            return "closed"
        case aiohttp.ClientOSError() | OSError():
            return "reset"
        case aiohttp.ClientPayloadError():
            return "undecodable" if _garbled(error) else "cut"
        case aiohttp.ClientResponseError():
            return "undecodable"  # no HTTP, or headers without end
        case _:
            return "other"


def _garbled(error: BaseException | None) -> bool:
    """Whether the body came whole but its encoding is broken: aiohttp reports that as a body cut short, with a cause."""
    while error is not None:
        if isinstance(error, ContentEncodingError):
            return True
        error = error.__cause__
    return False


def _with_credentials(url: str, api_key: str | None) -> tuple[str, dict[str, str]]:
    """The URL without user and password, and the headers that carry them or the key."""
    headers = dict(_HEADERS)
    if api_key is not None:
        headers["Authorization"] = f"Bearer {api_key}"
    parts = urlsplit(url)
    if parts.username is None:
        return url, headers
    if api_key is None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        headers["Authorization"] = "Basic " + base64.b64encode(pair).decode()
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])), headers

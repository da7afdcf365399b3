"""One HTTP try of a judge: bounded in time and bytes, with a closed set of faults and no hidden retries."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import Literal, Protocol
from urllib.parse import urlsplit, urlunsplit

import aiohttp

FaultKind = Literal["connect", "reset", "cut", "timeout", "oversized", "undecodable"]
RETRY_AFTER = "retry-after"


class TransportFault(Exception):
    """The try brought no whole reply; `kind` says how it ended, `error` which exception it was."""

    def __init__(self, kind: FaultKind, error: str) -> None:
        super().__init__(f"{kind}: {error}")
        self.kind = kind
        self.error = error


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


class AiohttpTransport:
    """Real HTTP. Limits are ours, in front of it: the pool itself is unbounded."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60, keepalive_timeout=30),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("User-Agent", "Accept"),
                raise_for_status=False,
                trust_env=False,
                auto_decompress=True,
            )
        return self._session

    async def post(
        self, url: str, body: bytes, *, api_key: str | None, timeout_s: float, connect_s: float, max_bytes: int
    ) -> Reply:
        """Send the body; the whole reply, or TransportFault with what went wrong."""
        url, headers = _with_credentials(url, api_key)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=min(connect_s, timeout_s))
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._open().post(url, data=body, headers=headers, timeout=timeout, allow_redirects=False) as response,
            ):
                content = await _read(response, max_bytes)
                return Reply(response.status, response.headers.get(RETRY_AFTER), content)
        except TransportFault:
            raise
        except aiohttp.ConnectionTimeoutError as error:
            raise TransportFault("connect", type(error).__name__) from error
        except TimeoutError as error:
            raise TransportFault("timeout", "TimeoutError") from error
        except (aiohttp.ClientConnectorError, ssl.SSLError) as error:
            raise TransportFault("connect", type(error).__name__) from error
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError) as error:
            raise TransportFault("reset", type(error).__name__) from error
        except aiohttp.ClientPayloadError as error:
            raise TransportFault(_payload_kind(error), type(error).__name__) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise TransportFault("undecodable", type(error).__name__) from error

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None


async def _read(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """The decompressed body, given up as soon as it is too long."""
    declared = response.content_length
    if declared is not None and declared > max_bytes:
        response.close()
        raise TransportFault("oversized", f"more than {max_bytes} bytes")
    chunks, size = [], 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > max_bytes:
            response.close()
            raise TransportFault("oversized", f"more than {max_bytes} bytes")
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _payload_kind(error: aiohttp.ClientPayloadError) -> FaultKind:
    return "undecodable" if "decode" in str(error).lower() or "encoding" in str(error).lower() else "cut"


def _with_credentials(url: str, api_key: str | None) -> tuple[str, dict[str, str]]:
    """The URL without user and password, and the headers that carry them or the key."""
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if api_key is not None:
        headers["Authorization"] = f"Bearer {api_key}"
    parts = urlsplit(url)
    if parts.username is None:
        return url, headers
    if api_key is None:
        headers["Authorization"] = aiohttp.BasicAuth(parts.username, parts.password or "").encode()
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])), headers

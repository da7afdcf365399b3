"""A judge that is no model: deterministic scores over real HTTP, faults on demand, and a log of every call.

Scores come from a digest of the two texts in their order, so that anybody can recompute them; a text that holds
`[[q=NUMBER]]` scores that number. It speaks the Responses and the chat formats on any path that ends so.
"""

from __future__ import annotations

import asyncio
import collections
import hashlib
import random
import re
import time
from dataclasses import dataclass, field
from typing import Any, Final

import httptools
import msgspec

MARK: Final = re.compile(r"\[\[q=([0-9.]+)\]\]")
KEPT_CALLS: Final = 200_000
FAULTS: Final = ("error", "busy", "malformed", "empty", "exhausted", "drop", "hang")


@dataclass(slots=True)
class MockOptions:
    """How the judge behaves; rates are shares of calls, tried in the order of FAULTS."""

    latency_ms: float = 0.0
    seed: int = 1
    rates: dict[str, float] = field(default_factory=dict)
    fail_first: int = 0  # so many first calls of every pair suffer `fail_kind`
    fail_kind: str = "error"


def score_pair(first: str, second: str) -> tuple[float, float, float]:
    """(score_1, score_2, ranking) of two texts in this order."""
    digest = hashlib.sha256(
        b"%d:" % len(first) + first.encode("utf-8", "surrogatepass") + second.encode("utf-8", "surrogatepass")
    ).digest()
    score_1, score_2, ranking = 1.0 + digest[0] % 5, 1.0 + digest[1] % 5, 1.0 + digest[2] % 6
    marks = MARK.search(first), MARK.search(second)
    if any(marks):
        score_1, score_2 = (
            float(mark[1]) if mark else score for mark, score in zip(marks, (score_1, score_2), strict=True)
        )
        ranking = 3.0 if score_1 == score_2 else 2.0 if score_1 > score_2 else 5.0
    return score_1, score_2, ranking


def pair_key(first: str, second: str) -> str:
    """The name of two texts in this order in the log of calls."""
    return hashlib.sha256(f"{first}\x00{second}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


class MockJudge:
    """Scores, faults and the log of calls."""

    def __init__(self, options: MockOptions) -> None:
        self.options: Final = options
        self.calls: Final[collections.deque[dict[str, Any]]] = collections.deque(maxlen=KEPT_CALLS)
        self.counts: Final[collections.Counter[str]] = collections.Counter()
        self._by_pair: collections.Counter[str] = collections.Counter()
        self._random = random.Random(options.seed)  # noqa: S311

    def answer(self, path: str, body: bytes) -> tuple[int, dict[str, Any] | None, str]:
        """(HTTP status, reply or None to drop the connection, outcome) of one call, which is logged."""
        request = msgspec.json.decode(body)
        pair = read_pair(request)
        if pair is None:
            return 400, {"error": {"message": "no response_1 and response_2", "type": "invalid_request_error"}}, "bad"
        key = pair_key(*pair)
        self._by_pair[key] += 1
        outcome = self._outcome(key)
        self.counts[outcome] += 1
        self.calls.append({"at": time.time(), "pair": key, "outcome": outcome, "call": self._by_pair[key]})
        chat = path.endswith("/chat/completions")
        return *self._reply(chat, outcome, pair, str(request.get("model") or "mock-judge")), outcome

    def _outcome(self, key: str) -> str:
        if self._by_pair[key] <= self.options.fail_first:
            return self.options.fail_kind
        drawn = self._random.random()
        for fault in FAULTS:
            drawn -= self.options.rates.get(fault, 0.0)
            if drawn < 0:
                return fault
        return "ok"

    def _reply(self, chat: bool, outcome: str, pair: tuple[str, str], model: str) -> tuple[int, dict[str, Any] | None]:
        match outcome:
            case "error":
                return 500, {"error": {"message": "mock failure", "type": "server_error"}}
            case "busy":
                return 429, {"error": {"message": "slow down", "type": "rate_limit_error"}}
            case "drop" | "hang":
                return 200, None
        score_1, score_2, ranking = score_pair(*pair)
        text = f'{{"score_1": {score_1:g}, "score_2": {score_2:g}, "ranking": {ranking:g}}}'
        if outcome == "malformed":
            text = "Both have their merits."
        if outcome in ("empty", "exhausted"):
            text = ""
        return 200, (_chat if chat else _responses)(text, model, outcome == "exhausted")

    def stats(self) -> dict[str, Any]:
        """Counts in total and by pair."""
        return {
            "calls": sum(self.counts.values()),
            "outcomes": dict(self.counts),
            "pairs": len(self._by_pair),
            "most_calls_of_a_pair": max(self._by_pair.values(), default=0),
        }


def read_pair(request: Any) -> tuple[str, str] | None:
    """The two texts of a request in either format, or None."""
    if not isinstance(request, dict):
        return None
    metadata = request.get("metadata")
    if isinstance(metadata, dict) and "response_1" in metadata and "response_2" in metadata:
        return str(metadata["response_1"]), str(metadata["response_2"])
    messages = request.get("messages")
    texts = {
        message.get("role"): str(message.get("content"))
        for message in (messages if isinstance(messages, list) else [])
        if isinstance(message, dict)
    }
    if "response_1" in texts and "response_2" in texts:
        return texts["response_1"], texts["response_2"]
    return None


def _responses(text: str, model: str, exhausted: bool) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "id": "resp_mock",
        "object": "response",
        "status": "incomplete" if exhausted else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if exhausted else None,
        "model": model,
        "output": [{"type": "message", "role": "assistant", "status": "completed", "content": content}],
        "usage": {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120},
    }


def _chat(text: str, model: str, exhausted: bool) -> dict[str, Any]:
    return {
        "id": "chatcmpl-mock",
        "object": "chat.completion",
        "model": model,
        "choices": [
            {
                "index": 0,
                "finish_reason": "length" if exhausted else "stop",
                "message": {"role": "assistant", "content": text},
            }
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }


class MockProtocol(asyncio.Protocol):
    """One connection; requests are answered in order."""

    def __init__(self, judge: MockJudge) -> None:
        self._judge = judge
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._body = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the transport."""
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Feed the parser."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if self._transport is not None:
                self._transport.close()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._url = b""
        self._body.clear()

    def on_url(self, url: bytes) -> None:
        """A part of the path."""
        self._url += url

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._body += body

    def on_message_complete(self) -> None:
        """The request is whole: answer it, now or after the latency."""
        path = self._url.decode("latin-1").partition("?")[0]
        if self._parser.get_method() == b"GET":
            self._send(200, self._page(path))
            return
        try:
            status, reply, outcome = self._judge.answer(path, bytes(self._body))
        except (msgspec.DecodeError, ValueError):
            status, reply, outcome = 400, {"error": {"message": "the body is not JSON"}}, "bad"
        if outcome == "hang":
            return
        delay_s = self._judge.options.latency_ms / 1000
        if delay_s > 0:
            asyncio.get_running_loop().call_later(delay_s, self._send, status, reply)
        else:
            self._send(status, reply)

    def _page(self, path: str) -> Any:
        match path.rstrip("/").rpartition("/")[2]:
            case "stats":
                return self._judge.stats()
            case "calls":
                return list(self._judge.calls)
            case "models":
                return {"object": "list", "data": [{"id": "mock-judge", "object": "model"}]}
        return {"status": "ok"}

    def _send(self, status: int, reply: Any) -> None:
        if self._transport is None:
            return
        if reply is None:
            self._transport.abort()
            return
        body = msgspec.json.encode(reply)
        reason = {200: "OK", 400: "Bad Request", 429: "Too Many Requests", 500: "Internal Server Error"}[status]
        extra = "retry-after: 1\r\n" if status == 429 else ""
        self._transport.write(
            f"HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\n{extra}"
            f"content-length: {len(body)}\r\n\r\n".encode()
            + body
        )


async def start(options: MockOptions, host: str, port: int) -> tuple[asyncio.Server, MockJudge]:
    """A listening judge."""
    judge = MockJudge(options)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: MockProtocol(judge), host, port, backlog=4096)
    return server, judge

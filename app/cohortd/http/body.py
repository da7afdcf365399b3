"""Request bodies: read within limits, split into raw fields, and put together again with every number's text kept."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from cohortd.cohorts.digest import parse
from cohortd.errors import Refused

Receive = Callable[[], Awaitable[Any]]
RawFields = dict[str, bytes | msgspec.Raw]

DEPTH_MARGIN: Final = 50  # frames; 2 microseconds

_decode_raw: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_scan: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"[ \t\r\n]+")


class Disconnected(Exception):
    """The client went away before its body was whole."""


class BodyReader:
    """Reads bodies up to a size each, and up to a sum of all that are being read (R61)."""

    def __init__(self, max_body_bytes: int, max_reading_bytes: int) -> None:
        self._max_body = max_body_bytes
        self._max_reading = max_reading_bytes
        self._reading = 0

    async def read(self, receive: Receive, content_length: int | None) -> bytes:
        """The whole body; 413 or 429 as soon as it is known to be too much."""
        if content_length is not None and content_length > self._max_body:
            raise self._too_large()
        chunks: list[bytes] = []
        size = 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Disconnected
                chunk = message.get("body", b"")
                size += len(chunk)
                self._reading += len(chunk)
                if size > self._max_body:
                    raise self._too_large()
                if self._reading > self._max_reading:
                    raise Refused("overloaded", "Too many bytes of request bodies are being read at once.")
                chunks.append(chunk)
                if not message.get("more_body", False):
                    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        finally:
            self._reading -= size

    def _too_large(self) -> Refused:
        return Refused("body_too_large", f"The body is larger than max_body_bytes, {self._max_body} bytes.")


def raw_fields(body: bytes) -> RawFields:
    """The top-level fields of a JSON object, each as its own text; the last of duplicate keys counts."""
    if not body.isascii():
        try:
            body.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Refused("invalid_request", f"The body is not UTF-8 at byte {error.start}.") from None
    try:
        return dict(_decode_raw(body))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    if not isinstance(parse(body, "The body"), dict):
        raise Refused("invalid_request", "The body must be a JSON object.")
    return _fields_with_surrogates(body.decode("utf-8"))


def first_fields(body: bytes) -> RawFields:
    """The same, for a body that will be stored: what can be read here can be read again wherever a reply is made.

    Parsers give up at a depth that counts the frames around them. Without this margin a body at the very limit is stored,
    judged, and then refused as it is split for its reply.
    """
    return _further_down(DEPTH_MARGIN, body)


def _further_down(frames: int, body: bytes) -> RawFields:
    return raw_fields(body) if frames == 0 else _further_down(frames - 1, body)


def _fields_with_surrogates(text: str) -> RawFields:
    """The same for a body that msgspec refuses for its lone surrogates; it is known to be a JSON object."""
    fields: RawFields = {}
    at = _skip(text, text.index("{") + 1)
    while text[at] != "}":
        key, at = _scan.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, end = _scan.raw_decode(text, start)
        fields[key] = text[start:end].encode("utf-8")
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return fields


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def value_of(fields: Mapping[str, bytes | msgspec.Raw], name: str, default: Any = msgspec.UNSET) -> Any:
    """The parsed value of a field, or the default where it is absent."""
    raw = fields.get(name)
    return default if raw is None else parse(raw, f"`{name}`")


def joined(parts: Iterable[tuple[str, bytes | msgspec.Raw]]) -> bytes:
    """A JSON object of these fields, their texts kept."""
    return b"{" + b",".join(_key(name) + b":" + bytes(raw) for name, raw in parts) + b"}"


def _key(name: str) -> bytes:
    try:
        return msgspec.json.encode(name)
    except UnicodeEncodeError:
        return json.dumps(name).encode()

"""Strict parsing, one canonical form of a JSON value, and the digests made of it (SPEC R6, R7)."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Final

import msgspec

from cohortd.errors import Refused

VERSION: Final = b"\x01"
DIGITS_LIMIT: Final = 4000

_encode: Final = msgspec.json.Encoder(order="sorted").encode
_decode: Final = msgspec.json.Decoder().decode
_LONG_NUMBER: Final = re.compile(rb"(?<![0-9])[0-9]{%d}" % (DIGITS_LIMIT + 1))  # each run is tried once, at its start


def parse(raw: bytes | msgspec.Raw, where: str = "the body") -> Any:
    """The JSON value in `raw`, the last of duplicate keys counting; `invalid_request` says what cannot be read.

    Lone surrogates are kept (R71); NaN, Infinity, numbers beyond a double and integers over 4,000 digits are refused.
    """
    try:
        value = _decode(raw)
    except RecursionError:
        raise _refused(where, "is nested too deeply") from None
    except (msgspec.MsgspecError, ValueError):
        value = _parse_with_surrogates(bytes(raw), where)
    if len(raw) > DIGITS_LIMIT and _may_hold_long_number(bytes(raw)):
        _refuse_long_integers(value, where)
    return value


def _may_hold_long_number(raw: bytes) -> bool:
    """Whether there are so many digits in a row somewhere; such a run covers one of the places that are looked at."""
    return any(
        raw[at : at + 1].isdigit() and _LONG_NUMBER.search(raw, at - DIGITS_LIMIT, at + DIGITS_LIMIT + 1) is not None
        for at in range(DIGITS_LIMIT, len(raw), DIGITS_LIMIT)
    )


def _parse_with_surrogates(raw: bytes, where: str) -> Any:
    """What msgspec refuses: lone surrogates are read, everything else is refused with its reason."""
    try:
        return json.loads(raw.decode("utf-8"), parse_constant=_constant, parse_float=_finite, parse_int=_integer)
    except RecursionError:
        raise _refused(where, "is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise _refused(where, f"is not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise _refused(where, f"is not JSON: {error.msg} at character {error.pos}") from None
    except ValueError as error:
        raise _refused(where, str(error)) from None


def _constant(name: str) -> Any:
    raise ValueError(f"holds {name}, which is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("holds a number beyond the range of a double")
    return value


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > DIGITS_LIMIT:
        raise ValueError(f"holds an integer of more than {DIGITS_LIMIT} digits")
    return int(text)


def _refuse_long_integers(value: Any, where: str) -> None:
    limit = 10**DIGITS_LIMIT
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, int) and abs(item) >= limit:
            raise _refused(where, f"holds an integer of more than {DIGITS_LIMIT} digits")
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


def _refused(where: str, what: str) -> Refused:
    return Refused("invalid_request", f"{where} {what}.")


def canonical(value: Any) -> bytes:
    """One byte string for each JSON value: keys sorted at every level, numbers by value and kind.

    A function of the parsed value alone: values with lone surrogates, which msgspec does not write, take the same
    form with the surrogates in their three-byte encoding.
    """
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _canonical_with_surrogates(value)
    except RecursionError:
        raise _refused("the body", "is nested too deeply") from None


def _canonical_with_surrogates(value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except RecursionError:
        raise _refused("the body", "is nested too deeply") from None
    return text.encode("utf-8", "surrogatepass")


def response_digest(value: Any) -> bytes:
    """Version byte and SHA-256 of the canonical form: 33 bytes (R7)."""
    return VERSION + hashlib.sha256(canonical(value)).digest()


def prompt_fingerprint(input_value: Any, principle: str | None) -> bytes:
    """Version byte and SHA-256 over prompt and principle: 33 bytes (R6).

    A missing, null, empty-string or empty-list input are one; a missing and a null principle are one, "" is another.
    """
    prompt = None if input_value is msgspec.UNSET or input_value in (None, "", []) else input_value
    return VERSION + hashlib.sha256(canonical([prompt, principle])).digest()

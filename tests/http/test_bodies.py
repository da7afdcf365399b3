"""Bodies split into raw fields and put together again: nothing of a request's own text is lost (R20, R21, R61)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cohortd.cohorts.outcome import Failed, Rewarded
from cohortd.errors import Refused
from cohortd.http import replies
from cohortd.http.body import BodyReader, Disconnected, joined, raw_fields

texts = st.text(st.characters(codec=None), max_size=12)  # lone surrogates included
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, values, max_size=5)


@given(objects, st.booleans(), st.sampled_from([None, 2, "\t"]))
def test_an_object_survives_being_split_and_joined(value: dict[str, Any], ascii_only: bool, indent: Any) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    body = text.encode("utf-8", "surrogatepass")
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        with pytest.raises(Refused):
            raw_fields(body)
        return
    assert json.loads(joined(raw_fields(body).items())) == value


@given(st.binary(max_size=60) | objects.map(lambda value: json.dumps(value).encode()[:-1]))
def test_what_is_no_object_is_refused_and_never_fails_otherwise(body: bytes) -> None:
    code = None
    try:
        fields = raw_fields(body)
    except Refused as refused:
        code = refused.code
    else:
        assert isinstance(json.loads(joined(fields.items())), dict)
    assert code in (None, "invalid_request")


@pytest.mark.rule("R7")
def test_the_last_of_duplicate_keys_counts() -> None:
    for body in (b'{"a": 1, "b": 2, "\\u0061": 3}', b'{"a": 1, "b": "\\ud800", "\\u0061": 3}'):
        assert bytes(raw_fields(body)["a"]) == b"3"


FAILED = Failed("c", 0, 1, "judge_failed", "The judge failed.")


@pytest.mark.rule("R21")
@given(objects, st.none() | objects | texts | st.integers())
def test_a_masked_reply_is_the_request_with_the_mask(request_body: dict[str, Any], config: Any) -> None:
    sent = request_body | {"instance_config": config, "group_id": "g"}
    reply = json.loads(replies.masked(json.dumps(sent).encode(), FAILED))
    assert reply == {replies.ALIASES.get(name, name): value for name, value in sent.items()} | {
        "reward": 0.0,
        "mask_sample": True,
        "failure_kind": "judge_failed",
        "failure_reason": "The judge failed.",
        "_ng_failure_class": "judge_failed",
        "_ng_failure_judge_error": "The judge failed.",
        "instance_config": (config if isinstance(config, dict) else {}) | {"mask_sample": True},
    }


@pytest.mark.rule("R21", "R20")
def test_the_text_of_numbers_is_kept_in_both_replies() -> None:
    number = b"1" * 500
    body = b'{"instance_config":{"n":' + number + b',"x":1.50,"mask_sample":false},"response":{"y":1E2}}'
    masked = replies.masked(body, FAILED)
    assert b'{"n":' + number + b',"x":1.50,"mask_sample":true}' in masked
    assert b'"response":{"y":1E2}' in masked
    rewarded = replies.rewarded(body, Rewarded("c", 0, 1, 0.1 + 0.2, True, 2, (3,)), None)
    assert b'"response":{"y":1E2}' in rewarded
    assert b'"reward":0.30000000000000004' in rewarded
    assert b'"_ng_missing_rollout_indices":[3]' in rewarded
    assert json.loads(rewarded)["instance_config"]["mask_sample"] is True


def receiver(*messages: dict[str, Any]) -> Any:
    """An ASGI receive that gives these."""
    left = list(messages)

    async def receive() -> dict[str, Any]:
        return left.pop(0)

    return receive


def chunk(size: int, more: bool = True) -> dict[str, Any]:
    """A piece of a body."""
    return {"type": "http.request", "body": b"x" * size, "more_body": more}


@pytest.mark.rule("R61")
async def test_bodies_are_refused_as_soon_as_they_are_known_to_be_too_much() -> None:
    reader = BodyReader(max_body_bytes=100, max_reading_bytes=150)
    assert await reader.read(receiver(chunk(60), chunk(40, False)), None) == b"x" * 100
    for receive, length in ((receiver(), 101), (receiver(chunk(60), chunk(41)), None)):
        with pytest.raises(Refused) as refused:
            await reader.read(receive, length)
        assert refused.value.code == "body_too_large"
    with pytest.raises(Disconnected):
        await reader.read(receiver(chunk(60), {"type": "http.disconnect"}), None)

    async def another() -> dict[str, Any]:
        with pytest.raises(Refused) as refused:
            await reader.read(receiver(chunk(51)), None)
        assert refused.value.code == "overloaded"
        return chunk(0, False)

    pieces = iter([chunk(100)])

    async def in_pieces() -> dict[str, Any]:
        piece = next(pieces, None)
        return piece if piece is not None else await another()

    assert len(await reader.read(in_pieces, None)) == 100
    assert len(await reader.read(receiver(chunk(100, False)), None)) == 100  # what was refused is counted no more

"""The bodies of `/verify` replies (R20, R21), spliced from the request's own text."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from cohortd.cohorts.lifecycle import MASKED_FAILURES
from cohortd.cohorts.outcome import Failed, Rewarded
from cohortd.http.body import RawFields, joined, raw_fields

ALIASES: Final = {
    "group_id": "_ng_group_id",
    "group_attempt": "_ng_group_attempt",
    "rollout_index": "_ng_rollout_index",
    "task_index": "_ng_task_index",
}
WIRE_FAILURE: Final = "judge_failed"  # the wire says one word for both masked failures; SQL keeps the finer one

_TRUE: Final = b"true"
_FALSE: Final = b"false"


def encode(value: Any) -> bytes:
    """JSON of a value of ours; text of the request's may hold lone surrogates."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def rewarded(body: bytes, outcome: Rewarded, group_id: str | None) -> bytes:
    """A reward or its replay: the request's two objects as they came, and what the row says."""
    fields = raw_fields(body)
    parts: list[tuple[str, bytes | msgspec.Raw]] = [
        (name, fields[name]) for name in ("responses_create_params", "response") if name in fields
    ]
    parts += [
        ("reward", encode(outcome.reward)),
        ("_ng_group_id", encode(group_id)),
        ("_ng_group_attempt", encode(outcome.attempt)),
        ("_ng_rollout_index", encode(outcome.rollout_index)),
        ("mask_sample", _TRUE if outcome.mask_sample else _FALSE),
    ]
    if outcome.mask_sample:
        parts.append(("instance_config", _masked_config(fields)))
    if outcome.defaulted_comparisons:
        parts.append(("_ng_defaulted_comparisons", encode(outcome.defaulted_comparisons)))
    if outcome.missing:
        parts.append(("_ng_missing_rollout_indices", encode(outcome.missing)))
    return joined(parts)


def masked(body: bytes, outcome: Failed) -> bytes:
    """A failure of the judge: the whole request with a reward that is masked at the top and in `instance_config`."""
    fields = raw_fields(body)
    parts: RawFields = {}
    for name, raw in fields.items():
        parts[ALIASES.get(name, name)] = raw
    reason = encode(outcome.reason)
    parts |= {
        "reward": b"0.0",
        "mask_sample": _TRUE,
        "failure_kind": encode(WIRE_FAILURE),
        "failure_reason": reason,
        "_ng_failure_class": encode(WIRE_FAILURE),
        "_ng_failure_judge_error": reason,
        "instance_config": _masked_config(fields),
    }
    if outcome.missing:
        parts["_ng_missing_rollout_indices"] = encode(outcome.missing)
    return joined(parts.items())


def is_masked(outcome: Failed) -> bool:
    """Whether the failure is answered with a masked 200 rather than a problem."""
    return outcome.kind in MASKED_FAILURES


def single(body: bytes, score: float) -> bytes:
    """The reply of a group of one (R5): nothing was compared and nothing is stored."""
    fields = raw_fields(body)
    parts: list[tuple[str, bytes | msgspec.Raw]] = [
        (name, fields[name]) for name in ("responses_create_params", "response") if name in fields
    ]
    return joined([*parts, ("reward", encode(score)), ("mask_sample", _FALSE)])


def _masked_config(fields: RawFields) -> bytes:
    """The request's own object with the mask in it, the text of its numbers kept; anything else becomes the mask."""
    config = bytes(fields.get("instance_config", b"")).strip()
    own = raw_fields(config) if config.startswith(b"{") else {}
    return joined({**own, "mask_sample": _TRUE}.items())

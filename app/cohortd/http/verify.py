"""`POST /verify`: NeMo Gym's contract on durable cohorts (SPEC 5)."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from cohortd.cohorts.identity import CoordinateFields, is_single
from cohortd.cohorts.outcome import Failed, Pending, Rewarded
from cohortd.errors import Refused
from cohortd.failpoints import failpoint
from cohortd.http import raw, replies
from cohortd.http.body import RawFields, first_fields, value_of
from cohortd.http.state import HttpState
from cohortd.service.admission import Submission, overloaded
from cohortd.store.bodies import unpack

COORDINATES: Final = {
    "_ng_group_id": "ng_group_id",
    "_ng_group_attempt": "ng_group_attempt",
    "_ng_rollout_index": "ng_rollout_index",
    "_ng_task_index": "ng_task_index",
    "_ng_group_size": "ng_group_size",
    "group_id": "group_id",
    "group_attempt": "group_attempt",
    "rollout_index": "rollout_index",
    "task_index": "task_index",
    "prompt_id": "prompt_id",
}


class Parked:
    """A stored request that waits: its compressed body, who it is, and the future. Nothing else of it is kept (R60)."""

    __slots__ = ("answer", "body", "codec", "group_id")

    def __init__(self, answer: asyncio.Future[Any], codec: int, body: bytes, group_id: str | None) -> None:
        self.answer = answer
        self.codec = codec
        self.body = body
        self.group_id = group_id


async def verify(state: HttpState, campaign: str, receive: Any, send: Any, length: int | None) -> None:
    """Store the response in its slot, wait for the cohort, and reply with the stored reward or the explicit failure."""
    parked = await _admit(state, campaign, receive, length)
    if isinstance(parked, bytes):
        await raw.reply_json(send, parked)
        return
    outcome = await raw.awaited(parked.answer, receive)
    failpoint("before_reply")
    await _reply(send, parked, outcome)


async def _admit(state: HttpState, campaign: str, receive: Any, length: int | None) -> Parked | bytes:
    """Read the body and hand it to the scribe; the body itself lives only in this frame (DESIGN 4, memory)."""
    body = await state.bodies.read(receive, length)
    fields = first_fields(body)
    if "response" not in fields:
        raise Refused("invalid_response", "`response` is missing: the rollout's response object.")
    params = value_of(fields, "responses_create_params", {})
    if not isinstance(params, dict):
        raise Refused("invalid_request", "`responses_create_params` must be an object.")
    coordinates = _coordinates(fields)
    submission = Submission(
        campaign, "gym", coordinates, params.get("input", msgspec.UNSET), value_of(fields, "principle", None),
        value_of(fields, "response"), body,
    )  # fmt: skip
    if is_single(coordinates, state.admission.profiles.size(campaign)):
        return replies.single(body, state.admission.default_score(submission))
    command, found = state.admission.prepare(submission)
    answer = state.admission.submit(command, parks=True)
    group_id = found.key.group_id if found.key.kind == "explicit" else None
    return Parked(answer, command.codec, command.body, group_id)


def _coordinates(fields: RawFields) -> CoordinateFields:
    return CoordinateFields(
        **{COORDINATES[name]: value_of(fields, name) for name in COORDINATES.keys() & fields.keys()}
    )


async def _reply(send: Any, parked: Parked, outcome: Any) -> None:
    match outcome:
        case Rewarded():
            await raw.reply_json(send, replies.rewarded(unpack(parked.codec, parked.body), outcome, parked.group_id))
        case Failed() if replies.is_masked(outcome):
            await raw.reply_json(send, replies.masked(unpack(parked.codec, parked.body), outcome))
        case Failed():
            missing = {"missing_rollout_indices": outcome.missing} if outcome.kind == "collection_timeout" else {}
            await raw.reply_problem(send, outcome.kind, outcome.reason, cohort_id=outcome.cohort_id, **missing)
        case Refused():
            await raw.reply_problem(send, outcome.code, outcome.detail)
        case Pending():
            refusal = overloaded()
            await raw.reply_problem(send, refusal.code, refusal.detail)

"""`POST /compare`: responses against each other, statelessly (SPEC 8)."""

from __future__ import annotations

import asyncio
from typing import Any

from cohortd.cohorts.conversation import candidate, history
from cohortd.cohorts.profile import Profile
from cohortd.cohorts.scoring import MemberTexts
from cohortd.errors import Refused
from cohortd.http import raw
from cohortd.http.body import raw_fields, value_of
from cohortd.http.replies import encode
from cohortd.http.state import HttpState
from cohortd.service.compare import Comparison


async def compare(state: HttpState, campaign: str, receive: Any, send: Any, length: int | None) -> None:
    """Rewards, verdicts and Gym's metrics of the responses in the body; a client that leaves ends the comparison."""
    profile = state.admission.profiles.frozen(campaign, "gym").profile
    fields = raw_fields(await state.bodies.read(receive, length))
    texts = _texts(value_of(fields, "response_objs"), state.settings.service.max_rollouts_per_prompt)
    conversation = value_of(fields, "conversation_history", [])
    if not isinstance(conversation, list):
        raise Refused("invalid_request", "`conversation_history` must be a list of {role, content}.")
    principle = _principle(value_of(fields, "principle", None), profile)
    if len(texts) < 2:
        rewards = [profile.default_score] * len(texts)
        await raw.reply_json(send, encode({"rewards": rewards, "comparison_results": None, "metrics": None}))
        return
    comparison = asyncio.ensure_future(state.comparer.compare(profile, history(conversation), principle, texts))
    await raw.reply_json(send, encode(_shape(await raw.awaited(comparison, receive))))


def _texts(responses: Any, limit: int) -> list[MemberTexts]:
    if not isinstance(responses, list):
        raise Refused("invalid_request", "`response_objs` must be a list of response objects.")
    if len(responses) > limit:
        raise Refused("invalid_request", f"`response_objs` holds more than max_rollouts_per_prompt={limit} responses.")
    candidates = [candidate(response) for response in responses]
    return [MemberTexts(found.answer, found.reasoning) for found in candidates]


def _principle(principle: Any, profile: Profile) -> str | None:
    if principle is not None and not isinstance(principle, str):
        raise Refused("invalid_request", "`principle` must be a string or null.")
    if not profile.use_principle:
        return None
    return principle if principle is not None else profile.default_principle


def _shape(result: Comparison) -> dict[str, Any]:
    return {
        "rewards": result.rewards,
        "comparison_results": [
            {
                "response_i": verdict.first,
                "response_j": verdict.second,
                "judge_idx": verdict.judge_index,
                "score_1": verdict.score_1,
                "score_2": verdict.score_2,
                "ranking": verdict.ranking,
            }
            for verdict in result.verdicts
        ],
        "metrics": {
            "mean_individual_score": result.metrics.mean_individual_score,
            "std_individual_score": result.metrics.std_individual_score,
            "tiebreak_usage_rate": result.metrics.tiebreak_usage_rate,
        },
    }

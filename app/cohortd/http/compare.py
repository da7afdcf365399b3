"""`POST /compare`: responses against each other, statelessly (SPEC 8)."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, post

from cohortd.cohorts.conversation import candidate, history
from cohortd.cohorts.scoring import MemberTexts
from cohortd.errors import Refused
from cohortd.http import access
from cohortd.http.body import raw_fields, value_of
from cohortd.http.replies import encode
from cohortd.http.state import HttpState
from cohortd.service.compare import Comparison


@post("/compare", status_code=200, include_in_schema=False)
async def compare(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Rewards, verdicts and Gym's metrics of the responses in the body; nothing is stored."""
    state: HttpState = request.app.state["http"]
    campaign = access.check(request.scope, state)
    body = await state.bodies.read(request.receive, access.content_length(request.scope))
    fields = raw_fields(body)
    conversation = value_of(fields, "conversation_history", [])
    responses = value_of(fields, "response_objs")
    principle = value_of(fields, "principle", None)
    if not isinstance(conversation, list):
        raise Refused("invalid_request", "`conversation_history` must be a list of {role, content}.")
    if not isinstance(responses, list):
        raise Refused("invalid_request", "`response_objs` must be a list of response objects.")
    if principle is not None and not isinstance(principle, str):
        raise Refused("invalid_request", "`principle` must be a string or null.")
    if len(responses) > state.settings.service.max_rollouts_per_prompt:
        raise Refused("invalid_request", "`response_objs` holds more than max_rollouts_per_prompt.")
    texts = [candidate(response) for response in responses]
    profile = state.admission.profiles.frozen(campaign, "gym").profile
    if len(texts) < 2:
        return _json({"rewards": [profile.default_score] * len(texts), "comparison_results": None, "metrics": None})
    wanted = None
    if profile.use_principle:
        wanted = principle if principle is not None else profile.default_principle
    result = await state.comparer.compare(
        profile, history(conversation), wanted, [MemberTexts(text.answer, text.reasoning) for text in texts]
    )
    return _json(_shape(result))


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


def _json(value: Any) -> Response[bytes]:
    return Response(encode(value), media_type="application/json")

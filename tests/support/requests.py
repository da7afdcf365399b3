"""Real-shaped requests of NeMo Gym's `/verify`, and what their rewards must be."""

from __future__ import annotations

from typing import Any

from cohortd.mock_judge import score_pair


def response(text: str, *, reasoning: str = "") -> dict[str, Any]:
    """A Responses API object with this answer."""
    output: list[dict[str, Any]] = []
    if reasoning:
        output.append({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": reasoning}]})
    output.append(
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }
    )
    return {"id": "resp_1", "object": "response", "model": "policy", "created_at": 1764550000.0, "output": output}


def verify_body(
    group: str | None, slot: int, *, text: str | None = None, attempt: int | None = 0, prompt: Any = None, **extra: Any
) -> dict[str, Any]:
    """A `/verify` request of one rollout."""
    body: dict[str, Any] = {
        "responses_create_params": {
            "input": prompt or [{"role": "user", "content": f"Describe the harbour of {group}."}]
        },
        "response": response(text if text is not None else answer_text(group, slot)),
        "_ng_rollout_index": slot,
    }
    if group is not None:
        body["_ng_group_id"] = group
        if attempt is not None:
            body["_ng_group_attempt"] = attempt
    return body | extra


def answer_text(group: str | None, slot: int) -> str:
    """What rollout `slot` of the group answers."""
    return f"Answer {slot} of {group}: gulls, cranes and the smell of tar."


def expected_rewards(texts: list[str]) -> list[float]:
    """The rewards of a circular cohort of these answers, computed here from the mock judge's scores."""
    n = len(texts)
    sums, counts = [0.0] * n, [0] * n
    for first in range(n):
        second = (first + 1) % n
        score_1, score_2, ranking = score_pair(texts[first], texts[second])
        if score_1 == score_2:
            score_1, score_2 = score_1 + (3.5 - ranking), score_2 - (3.5 - ranking)
        for slot, score in ((first, score_1), (second, score_2)):
            sums[slot] += score
            counts[slot] += 1
    return [total / count for total, count in zip(sums, counts, strict=True)]


def expected_group(group: str | None, n: int = 8) -> list[float]:
    """The rewards of a group whose members answer as `answer_text` says."""
    return expected_rewards([answer_text(group, slot) for slot in range(n)])

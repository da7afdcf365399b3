"""Cohorts to send: bodies of a wanted size, their answers, and the rewards that they must get."""

from __future__ import annotations

import json
import random
import string
from dataclasses import dataclass, field
from typing import Any, Final

from cohortd.mock_judge import score_pair

WORDS: Final = 400
REASONING_SHARE: Final = 0.4


class Cohorts:
    """Cohorts of one run: the same seed makes the same bodies, another run id other groups."""

    def __init__(self, run_id: str, n: int, body_bytes: int, seed: int = 1) -> None:
        self.run_id: Final = run_id
        self.n: Final = n
        rng = random.Random(seed)
        words = ["".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 9))) for _ in range(WORDS)]
        self._filler = ""
        self._reasoning = self._answer = 0
        bare = len(self.body(0, 0))
        room = max(body_bytes - bare, 0)
        self._filler = " ".join(rng.choices(words, k=max(64, room // 2)))
        self._reasoning = int(room * REASONING_SHARE)
        self._answer = room - self._reasoning

    def answer(self, cohort: int, slot: int) -> str:
        """The answer that the judge compares."""
        return (
            f"Answer {slot} to prompt {cohort} of {self.run_id}: {self._words(cohort * 131 + slot * 17, self._answer)}"
        )

    def _words(self, at: int, length: int) -> str:
        start = at % max(1, len(self._filler) - length)
        return self._filler[start : start + length]

    def body(self, cohort: int, slot: int) -> bytes:
        """The `/verify` body of one rollout."""
        thoughts = f"Thoughts {slot}: {self._words(cohort * 37 + slot * 101, self._reasoning)}"
        text = {"type": "output_text", "text": self.answer(cohort, slot), "annotations": []}
        output: list[dict[str, Any]] = [
            {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": thoughts}]},
            {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [text]},
        ]
        request = {
            "responses_create_params": {
                "input": [{"role": "user", "content": f"Prompt {cohort} of {self.run_id}: describe the harbour."}],
                "temperature": 1.0,
                "top_p": 1.0,
            },
            "response": {
                "id": f"resp_{cohort}_{slot}", "created_at": 1764550000.0, "object": "response", "model": "policy",
                "status": "completed", "error": None, "incomplete_details": None, "instructions": None, "metadata": {},
                "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "temperature": 1.0, "top_p": 1.0,
                "output": output,
                "usage": {"input_tokens": 20, "output_tokens": 500, "total_tokens": 520},
            },
            "_ng_task_index": cohort,
            "_ng_group_id": f"{self.run_id}-{cohort}",
            "_ng_group_attempt": 0,
            "_ng_rollout_index": slot,
        }  # fmt: skip
        return json.dumps(request).encode()

    def expected(self, cohort: int) -> list[float]:
        """The rewards of a circular cohort, computed here from the mock judge's scores."""
        texts = [self.answer(cohort, slot) for slot in range(self.n)]
        pairs = [(slot, (slot + 1) % self.n) for slot in range(self.n)]
        totals, counts = [0.0] * self.n, [0] * self.n
        for first, second in pairs:
            score_1, score_2, ranking = score_pair(texts[first], texts[second])
            if score_1 == score_2:
                score_1, score_2 = score_1 + (3.5 - ranking), score_2 - (3.5 - ranking)
            for slot, score in ((first, score_1), (second, score_2)):
                totals[slot] += score
                counts[slot] += 1
        return [total / count for total, count in zip(totals, counts, strict=True)]


@dataclass(slots=True)
class Sent:
    """What was sent and what came back, by (cohort, slot)."""

    sent_at: dict[tuple[int, int], float] = field(default_factory=dict)
    got_at: dict[tuple[int, int], float] = field(default_factory=dict)
    rewards: dict[tuple[int, int], float] = field(default_factory=dict)

    def releases_ms(self) -> list[float]:
        """Of every member: from its cohort's last member being sent to its own reply."""
        last: dict[int, float] = {}
        for (cohort, _), at in self.sent_at.items():
            last[cohort] = max(last.get(cohort, 0.0), at)
        return [(at - last[cohort]) * 1000 for (cohort, _), at in self.got_at.items()]


def quantile(values: list[float], share: float) -> float:
    """The value below which the share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

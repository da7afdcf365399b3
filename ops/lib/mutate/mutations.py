"""The edits: a rule, a place in the code, what it becomes, and the tests that must notice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

APP: Final = "app/cohortd/"


@dataclass(frozen=True, slots=True)
class Mutation:
    """`old`, which stands once in `path`, becomes `new`; one of `tests` must fail."""

    rule: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        """What it is called in output."""
        return f"{self.rule} {self.path}: {self.old.strip()[:60]}"


def _of(path: str, tests: str, *edits: tuple[str, str, str]) -> list[Mutation]:
    return [Mutation(rule, APP + path, old, new, tuple(tests.split())) for rule, old, new in edits]


MUTATIONS: Final[list[Mutation]] = [
    *_of(
        "cohorts/admission.py",
        "tests/unit/test_rules.py",
        ("R6", "if group.fingerprint != arrival.fingerprint:", "if False:"),
        ("R14", "if arrival.attempt < group.newest_attempt:", "if arrival.attempt < group.newest_attempt - 1:"),
        ("R11", 'if cohort.results_dropped and arrival.kind == "explicit":', "if False:"),
        ("R10", "if stored == arrival.digest:", "if stored is not None:"),
        ("R4", "if arrival.size is not None and arrival.size != cohort.size:", "if False:"),
        ("R35", 'not in ("superseded", "cancelled")', 'not in ("superseded",)'),
        ("R15", "active = cohort is not None and not cohort.settled", "active = False"),
        ("R24", "return ReplayFailure(LEGACY_ADVICE)", "return ReplayFailure()"),
    ),
    *_of(
        "cohorts/admission.py",
        "tests/http/test_deadlines.py",
        ("R33", 'if cohort.status == "collecting" and cohort.collection_over:', "if False:"),
    ),
    *_of(
        "cohorts/plan.py",
        "tests/unit/test_vectors.py tests/unit/test_rules.py",
        ("R40", "[(i, (i + 1) % n) for i in range(n)]", "[(i, (i + 1) % n) for i in range(n - 1)]"),
        (
            "R40",
            "[(i, j) for i in range(n) for j in range(i + 1, n)]",
            "[(j, i) for i in range(n) for j in range(i + 1, n)]",
        ),
    ),
    *_of(
        "cohorts/scoring.py",
        "tests/unit/test_vectors.py",
        ("R50", "shift = 3.5 - verdict.ranking", "shift = verdict.ranking - 3.5"),
        ("R50", "base[winner] >= threshold", "base[winner] > threshold"),
        ("R50", "if count else default_score", "if count else 0.0"),
    ),
    *_of(
        "cohorts/digest.py",
        "tests/unit/test_digest.py",
        ("R7", 'msgspec.json.Encoder(order="sorted").encode', "msgspec.json.Encoder().encode"),
        ("R6", "canonical([prompt, principle])", "canonical([prompt])"),
        ("R7", 'if value in (float("inf"), float("-inf")):', "if False:"),
    ),
    *_of(
        "cohorts/identity.py",
        "tests/unit/test_identity.py",
        (
            "R2",
            "if type(value) is not int or not 0 <= value < INDEX_LIMIT:",
            "if not isinstance(value, int) or not 0 <= value < INDEX_LIMIT:",
        ),
        ("R1", "(type(canonical) is not type(alias) or canonical != alias)", "canonical != alias"),
        ("R5", "if fields.ng_group_size is not UNSET and fields.ng_group_size is not None:", "if False:"),
        ("R8", "    if attempt:", "    if False:"),
    ),
    *_of(
        "cohorts/verdict.py",
        "tests/unit/test_verdict.py tests/unit/test_vectors.py",
        ("R44", "(everywhere[-1] if everywhere else None)", "(everywhere[0] if everywhere else None)"),
        ("R44", "if type(value) is not float:", "if isinstance(value, str):"),
        ("R44", "text[text.rfind(_THINK_END)", "text[text.find(_THINK_END)"),
        ("R44", "low <= value <= high", "value <= high"),
        ("R51", "ambiguous=any(other != chosen for other in everywhere)", "ambiguous=False"),
    ),
    *_of(
        "cohorts/conversation.py",
        "tests/unit/test_conversation.py tests/unit/test_vectors.py",
        ("R43", 'part.get("type") in kinds and', 'part.get("type") in kinds[1:] and'),
        ("R16", 'raise Refused("invalid_response", f"`{where}[{at}].text` must be a string.")', "continue"),
        ("R38", "text[len(text) - tail :]", "text[len(text) - 1 :]"),
        ("R71", '_UNREADABLE.sub(lambda match: f"\\\\u{ord(match[0]):04x}", text), True', "text, True"),
    ),
    *_of(
        "store/verdicts.py",
        "tests/store/test_leases.py",
        ("L5", "if cohort.fence != held.fence or cohort.claimed_by != context.token:", "if False:"),
        ("L4", "if refused is None and _cohort(work, held).evaluation_over:", "if False:"),
    ),
    *_of(
        "store/claims.py",
        "tests/store/test_leases.py",
        ("L5", "fence = fence + 1,", "fence = fence,"),
        ("L5", 'return f"lease_expires_at <= (SELECT {now_sql(engine)})"', 'return "TRUE"'),
        ("L7", "INTERNAL_FROM: Final = 5", "INTERNAL_FROM: Final = 50"),
        ("L7", "THEN NULL ELSE claimed_by END", "THEN claimed_by ELSE claimed_by END"),
    ),
    *_of(
        "store/settlement.py",
        "tests/store tests/http/test_verify.py tests/http/test_policies.py",
        ("L3", 'all(row[5] == "done" for row in rows)', 'any(row[5] == "done" for row in rows)'),
        ("R37", "masked = partial_masked or defaulted == len(own)", "masked = partial_masked"),
        ("R34", "masked = partial_masked or defaulted == len(own)", "masked = defaulted == len(own)"),
        ("R24", 'cohort.retired = cohort.key.kind == "legacy"', "cohort.retired = False"),
    ),
    *_of(
        "store/transitions.py",
        "tests/http/test_policies.py tests/http/test_deadlines.py",
        ("R34", "len(cohort.slots) >= profile.min_members", "len(cohort.slots) > 0"),
        ("R31", 'elif cohort.status in ("ready", "judging") and cohort.evaluation_over:', "elif False:"),
    ),
    *_of(
        "store/admission.py",
        "tests/http/test_retention.py tests/store/test_rules.py",
        ("R70", "if not group.fresh:  # retention", "if False:  # retention"),
        ("R2", "if group.fresh and not group.used:", "if False:"),
    ),
    *_of(
        "store/retention.py",
        "tests/http/test_retention.py",
        ("R70", "min(limit, excess)", "limit"),
        ("R70", "answer = NULL, reasoning = NULL,", "answer = NULL,"),
    ),
    *_of(
        "judges/caller.py",
        "tests/judges",
        ("R45", "if self._answers < limit:", "if self._answers <= limit:"),
        (
            "R45",
            "if self._faults <= self._profile.judge_transport_retries:",
            "if self._faults < self._profile.judge_transport_retries:",
        ),
        (
            "R46",
            'if self._answered and self._profile.on_unparseable == "default_verdict":',
            'if self._profile.on_unparseable == "default_verdict":',
        ),
        ("R45", "REFUSALS: Final = (401, 403, 404)", "REFUSALS: Final = (401, 403)"),
        ("R45", "self._endpoints.rest(slot, floor_s)", "pass"),
    ),
    *_of(
        "judges/endpoints.py",
        "tests/judges",
        ("R49", "(e is avoid, e.outstanding, e.last_taken)", "(e is avoid, e.last_taken)"),
        ("R49", "if len(row) < self.config.eject_after:", "if len(row) <= self.config.eject_after:"),
        ("R49", "            self._postpone_probe(slot.endpoint)", "            pass"),
    ),
    *_of(
        "judges/reasons.py",
        "tests/judges",
        ("L2", "return word if word.encode() not in body or word in _COMMON else None", "return word"),
    ),
    *_of(
        "judges/wire.py",
        "tests/judges tests/unit/test_vectors.py",
        ("R47", 'status == "incomplete" and reason == LIMIT_REASON', 'status == "incomplete"'),
    ),
    *_of(
        "service/judging.py",
        "tests/http/test_policies.py",
        ("R36", "if early and not isinstance(ended, VerdictReached):", "if False:"),
    ),
    *_of(
        "http/replies.py",
        "tests/http/test_bodies.py tests/http/test_verify.py",
        ("R21", '"reward": b"0.0",', '"reward": b"1.0",'),
        ("R21", '"instance_config": _masked_config(fields),', ""),
        ("R20", '("_ng_group_id", encode(group_id)),', '("_ng_group_id", encode(None)),'),
    ),
    *_of(
        "http/access.py",
        "tests/http/test_access.py",
        ("R62", "        _check_origin(scope, state)", "        pass"),
    ),
    *_of(
        "http/body.py",
        "tests/http/test_bodies.py",
        ("R61", "if size > self._max_body:", "if False:"),
    ),
]

"""Rules that need two rows, as triggers: what no client, no second process and no hand-typed SQL may do.

Each rule is written once as a condition that must never hold, and rendered for both engines. `OLD` and `NEW` are the
row before and after; `{same}` compares with nulls counted as values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cohortd.cohorts.lifecycle import TRANSITIONS

_SAME: Final = {"sqlite": "IS", "postgresql": "IS NOT DISTINCT FROM"}


@dataclass(frozen=True, slots=True)
class Rule:
    """`event` on `table` is refused with `message` when `broken` holds."""

    name: str
    event: str  # INSERT, DELETE, UPDATE or UPDATE OF columns
    table: str
    broken: str
    message: str

    def sqlite(self) -> tuple[str, ...]:
        """Statements that make the rule hold on SQLite."""
        return (
            f"CREATE TRIGGER {self.name} BEFORE {self.event} ON {self.table} FOR EACH ROW WHEN {self._broken('sqlite')}\n"
            f"BEGIN SELECT RAISE(ABORT, '{self.message}'); END",
        )

    def postgresql(self) -> tuple[str, ...]:
        """Statements that make the rule hold on Postgres."""
        row = "OLD" if self.event == "DELETE" else "NEW"
        return (
            f"CREATE FUNCTION {self.name}() RETURNS trigger LANGUAGE plpgsql AS $$\n"
            f"BEGIN\n  IF {self._broken('postgresql')} THEN\n"
            f"    RAISE EXCEPTION '{self.message}' USING ERRCODE = 'integrity_constraint_violation';\n"
            f"  END IF;\n  RETURN {row};\nEND $$",
            f"CREATE TRIGGER {self.name} BEFORE {self.event} ON {self.table} "
            f"FOR EACH ROW EXECUTE FUNCTION {self.name}()",
        )

    def _broken(self, engine: str) -> str:
        return " ".join(self.broken.format(same=_SAME[engine]).split())


def _changed(*columns: str) -> str:
    return " OR ".join(f"NOT (NEW.{column} {{same}} OLD.{column})" for column in columns)


def _allowed_transitions() -> str:
    return " OR ".join(
        f"(OLD.status = '{transition.source}' AND NEW.status = '{transition.target}')" for transition in TRANSITIONS
    )


_COHORT_OF = "FROM cohort WHERE cohort.id = {row}.cohort_id"
_OF_NEW = _COHORT_OF.format(row="NEW")
_OF_OLD = _COHORT_OF.format(row="OLD")
_RESULTS_DROPPED = f"EXISTS (SELECT 1 {_OF_OLD} AND cohort.results_dropped_at IS NOT NULL)"
_PAYLOAD_DROPPED = f"EXISTS (SELECT 1 {_COHORT_OF} AND (cohort.payload_dropped_at IS NOT NULL OR cohort.results_dropped_at IS NOT NULL))"
_SETTLED = "cohort.status IN ('completed', 'failed')"

RULES: Final = (
    Rule(
        "cohort_moves_forward",
        "UPDATE OF status",
        "cohort",
        f"NEW.status <> OLD.status AND NOT ({_allowed_transitions()})",
        "a cohort only moves along its life: this change of status is not one of its transitions (L1)",
    ),
    Rule(
        "cohort_identity_is_frozen",
        "UPDATE OF id, campaign, kind, group_id, attempt, incarnation, size, profile_digest, judge, judges_early, "
        "created_at, collection_deadline_at, rejudge_of",
        "cohort",
        _changed(
            "id",
            "campaign",
            "kind",
            "group_id",
            "attempt",
            "incarnation",
            "size",
            "profile_digest",
            "judge",
            "judges_early",
            "created_at",
            "collection_deadline_at",
            "rejudge_of",
        ),
        "identity, size, profile and collection deadline of a cohort never change",
    ),
    Rule(
        "cohort_settled_is_final",
        "UPDATE OF failure_kind, failure_reason, settled_at, ready_at, evaluation_deadline_at, results_dropped_at",
        "cohort",
        "OLD.settled_at IS NOT NULL AND ("
        + _changed("failure_kind", "failure_reason", "settled_at", "ready_at", "evaluation_deadline_at")
        + " OR (OLD.results_dropped_at IS NOT NULL AND NEW.results_dropped_at IS NULL))",
        "what a settled cohort says of itself never changes, and what was dropped does not come back (L3)",
    ),
    Rule(
        "cohort_fence_only_rises",
        "UPDATE OF fence",
        "cohort",
        "NEW.fence < OLD.fence",
        "a fence only rises (L5)",
    ),
    Rule(
        "cohort_completes_whole",
        "UPDATE OF status",
        "cohort",
        """NEW.status = 'completed' AND OLD.status <> 'completed' AND (
             (SELECT count(*) FROM member_reward WHERE member_reward.cohort_id = NEW.id)
               <> (SELECT count(*) FROM member_slot WHERE member_slot.cohort_id = NEW.id)
             OR EXISTS (SELECT 1 FROM comparison WHERE comparison.cohort_id = NEW.id
                          AND comparison.status IN ('planned', 'failed')))""",
        "a cohort completes with a reward for each member and a verdict for each planned comparison (L3)",
    ),
    Rule(
        "member_joins_collecting_cohort",
        "INSERT",
        "member_slot",
        f"NOT EXISTS (SELECT 1 {_OF_NEW} AND cohort.status = 'collecting' AND NEW.rollout_index < cohort.size)",
        "a member joins a collecting cohort, in a slot below its size (L3)",
    ),
    Rule(
        "member_response_is_final",
        "UPDATE OF cohort_id, rollout_index, response_digest, arrived_at, answer, reasoning",
        "member_slot",
        _changed("cohort_id", "rollout_index", "response_digest", "arrived_at")
        + " OR (("
        + _changed("answer", "reasoning")
        + f") AND NOT (NEW.answer IS NULL AND NEW.reasoning IS NULL AND {_PAYLOAD_DROPPED.format(row='NEW')}))",
        "the first accepted response of a slot is authoritative; retention alone drops its texts (R10, R70)",
    ),
    Rule(
        "member_outlives_all_but_retention",
        "DELETE",
        "member_slot",
        f"NOT {_RESULTS_DROPPED}",
        "a member is only dropped by retention (R10, R70)",
    ),
    Rule(
        "body_is_final",
        "UPDATE",
        "member_body",
        "TRUE",
        "a stored request never changes (R71)",
    ),
    Rule(
        "body_outlives_all_but_retention",
        "DELETE",
        "member_body",
        f"NOT {_PAYLOAD_DROPPED.format(row='OLD')}",
        "a stored request is only dropped by retention (R70)",
    ),
    Rule(
        "reward_enters_with_settlement",
        "INSERT",
        "member_reward",
        f"NOT EXISTS (SELECT 1 {_OF_NEW} AND cohort.status = 'judging')",
        "rewards are written in the transaction that completes their cohort (L3)",
    ),
    Rule(
        "reward_never_changes",
        "UPDATE",
        "member_reward",
        "TRUE",
        "a settled reward never changes (L3)",
    ),
    Rule(
        "reward_outlives_all_but_retention",
        "DELETE",
        "member_reward",
        f"NOT {_RESULTS_DROPPED}",
        "a settled reward is only dropped by retention (L3)",
    ),
    Rule(
        "comparison_joins_open_cohort",
        "INSERT",
        "comparison",
        f"EXISTS (SELECT 1 {_OF_NEW} AND {_SETTLED})",
        "a settled cohort is not judged any more (L3)",
    ),
    Rule(
        "comparison_verdict_is_final",
        "UPDATE OF cohort_id, first, second, judge_index, status, score_1, score_2, ranking, defaulted",
        "comparison",
        _changed("cohort_id", "first", "second", "judge_index")
        + " OR (OLD.status = 'done' AND (NEW.status NOT IN ('done', 'unused') OR "
        + _changed("score_1", "score_2", "ranking", "defaulted")
        + "))"
        + f" OR (NEW.status <> OLD.status AND EXISTS (SELECT 1 {_OF_NEW} AND {_SETTLED}))",
        "a verdict is given once, while its cohort is open (R41)",
    ),
    Rule(
        "comparison_outlives_all_but_retention",
        "DELETE",
        "comparison",
        f"NOT {_RESULTS_DROPPED}",
        "a comparison is only dropped by retention (R41, R70)",
    ),
    Rule(
        "profile_never_changes",
        "UPDATE",
        "judging_profile",
        "TRUE",
        "a judging profile is frozen with the cohorts that name it",
    ),
    Rule(
        "group_keeps_its_prompt",
        "UPDATE OF campaign, kind, group_id, fingerprint, newest_attempt",
        "cohort_group",
        _changed("campaign", "kind", "group_id", "fingerprint") + " OR NEW.newest_attempt < OLD.newest_attempt",
        "a group is bound to its prompt for ever and its newest attempt only rises (R6, R14)",
    ),
)

"""The views that people query: the member as one row, and where a reward came from."""

from __future__ import annotations

from typing import Final

# Name → (comment, SELECT). The SELECTs are the same on both engines but for what `{...}` stands for.
VIEWS: Final = {
    "member": (
        "A rollout of a cohort: its response and, once settled, its reward.",
        """SELECT s.cohort_id, c.campaign, c.kind, c.group_id, c.attempt, c.incarnation, s.rollout_index,
       s.answer, s.reasoning, s.text_escaped, s.answer_cut, s.response_digest,
       r.reward, r.base_reward, r.adjustment,
       CASE WHEN c.status = 'failed' THEN {true} ELSE COALESCE(r.mask_sample, {false}) END AS mask_sample,
       COALESCE(r.defaulted_comparisons, 0) AS defaulted_comparisons, s.metadata, s.arrived_at
  FROM member_slot s
  JOIN cohort c ON c.id = s.cohort_id
  LEFT JOIN member_reward r ON r.cohort_id = s.cohort_id AND r.rollout_index = s.rollout_index""",
    ),
    "cohort_history": (
        "What happened to a cohort, in order: changes of state, arrivals, verdicts.",
        """SELECT e.cohort_id, e.at, 'state' AS what, e.status, e.fence,
       {null_int} AS rollout_index, {null_int} AS first, {null_int} AS second, {null_int} AS judge_index, e.detail
  FROM cohort_event e
UNION ALL
SELECT s.cohort_id, s.arrived_at, 'arrival', {null_text}, {null_big}, s.rollout_index, {null_int}, {null_int}, {null_int}, {null_text}
  FROM member_slot s
UNION ALL
SELECT p.cohort_id, p.ended_at, 'verdict', p.status, {null_big}, {null_int}, p.first, p.second, p.judge_index, {null_text}
  FROM comparison p
 WHERE p.ended_at IS NOT NULL""",
    ),
    "reward_ledger": (
        "Every settled reward with its whole provenance.",
        """SELECT c.campaign, c.kind, c.group_id, c.attempt, c.incarnation, c.retired, r.cohort_id, r.rollout_index,
       r.reward, r.base_reward, r.adjustment, r.mask_sample, r.defaulted_comparisons,
       (SELECT count(*) FROM comparison p WHERE p.cohort_id = r.cohort_id AND p.status = 'done'
           AND (p.first = r.rollout_index OR p.second = r.rollout_index)) AS verdicts,
       (SELECT min(p.judge_model) FROM comparison p WHERE p.cohort_id = r.cohort_id AND p.status = 'done') AS judge_model,
       c.judge, c.size, c.fence, c.created_at, c.ready_at, c.settled_at, s.arrived_at, s.response_digest,
       g.fingerprint, c.profile_digest, f.document AS profile, c.rejudge_of
  FROM member_reward r
  JOIN cohort c ON c.id = r.cohort_id
  JOIN member_slot s ON s.cohort_id = r.cohort_id AND s.rollout_index = r.rollout_index
  JOIN cohort_group g ON g.campaign = c.campaign AND g.kind = c.kind AND g.group_id = c.group_id
  JOIN judging_profile f ON f.digest = c.profile_digest""",
    ),
    "judge_quality": (
        "How each judge model judges, campaign by campaign.",
        """SELECT c.campaign, c.judge, p.judge_model, count(*) AS verdicts,
       sum(CASE WHEN p.defaulted THEN 1 ELSE 0 END) AS defaulted,
       sum(CASE WHEN p.ambiguous THEN 1 ELSE 0 END) AS ambiguous,
       sum(CASE WHEN p.score_1 = p.score_2 THEN 1 ELSE 0 END) AS score_ties,
       sum(CASE WHEN p.ranking < 3.5 THEN 1 ELSE 0 END) AS first_preferred,
       sum(CASE WHEN p.ranking > 3.5 THEN 1 ELSE 0 END) AS second_preferred,
       sum(p.tries) AS tries, avg(p.latency_ms) AS mean_latency_ms,
       sum(p.prompt_tokens) AS prompt_tokens, sum(p.completion_tokens) AS completion_tokens
  FROM comparison p
  JOIN cohort c ON c.id = p.cohort_id
 WHERE p.status = 'done'
 GROUP BY c.campaign, c.judge, p.judge_model""",
    ),
}

_WORDS: Final = {
    "sqlite": {"true": "1", "false": "0", "null_int": "NULL", "null_big": "NULL", "null_text": "NULL"},
    "postgresql": {
        "true": "TRUE",
        "false": "FALSE",
        "null_int": "NULL::integer",
        "null_big": "NULL::bigint",
        "null_text": "NULL::text",
    },
}


def create_view(name: str, engine: str) -> str:
    """The statement that creates the view on the engine."""
    return f"CREATE VIEW {name} AS\n{VIEWS[name][1].format(**_WORDS[engine])}"

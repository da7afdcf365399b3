"""What stands in the demo's database, read as anybody may read it: with SQL, from outside."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

LOOKS: Final = (
    (
        "every reward of a group",
        "SELECT rollout_index, reward, mask_sample, answer FROM member WHERE group_id = 'bread-0001'",
    ),
    (
        "the verdicts behind them",
        "SELECT position, first, second, score_1, score_2, ranking FROM comparison JOIN cohort ON id = cohort_id WHERE group_id = 'bread-0001' ORDER BY position",
    ),
    (
        "what happened, in order (the kill is the second claim: fence 2)",
        "SELECT at, what, h.status, h.fence, rollout_index, first, second FROM cohort_history h JOIN cohort ON id = cohort_id WHERE group_id = 'bread-0001' ORDER BY at",
    ),
    ("how far each cohort is", "SELECT group_id, attempt, status, failure_kind, failure_reason FROM cohort"),
)

VERDICTS: Final = """SELECT c.group_id, p.first, p.second, p.score_1, p.score_2, p.ranking
  FROM comparison p JOIN cohort c ON c.id = p.cohort_id
 WHERE p.status = 'done' ORDER BY c.group_id, p.position"""


def query(database: Path, sql: str) -> list[tuple[Any, ...]]:
    """The rows that the statement gives; the connection can only read."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as connection:
        return connection.execute(sql).fetchall()


def verdicts(database: Path) -> list[tuple[str, int, int, float, float, float]]:
    """Every stored verdict: group, first, second, score_1, score_2, ranking."""
    return query(database, VERDICTS)

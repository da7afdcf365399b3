"""The indexes beyond primary and unique keys: partial, so that finished history costs them nothing.

Statements that use one must name its condition with literals: a bound status loses it on both engines (TRIAL 5.20).
"""

from __future__ import annotations

from sqlalchemy import Index, Table, text

from cohortd.store.tables import api_token, cohort

OPEN = "status IN ('ready', 'judging')"


def partial(name: str, table: Table, *columns: str, where: str, why: str, unique: bool = False) -> Index:
    """An index over the rows where `where` holds; `why` is stored as its comment."""
    return Index(
        name,
        *(table.c[column] for column in columns),
        unique=unique,
        sqlite_where=text(where),
        postgresql_where=text(where),
        info={"comment": why},
    )


INDEXES = (
    partial(
        "uq_cohort_live",
        cohort,
        "campaign",
        "kind",
        "group_id",
        "attempt",
        where="NOT retired",
        unique=True,
        why="Two incarnations of one identity can never both be live.",
    ),
    partial(
        "ix_cohort_claim",
        cohort,
        "campaign",
        "lease_expires_at",
        "ready_at",
        where=OPEN,
        why="What a judging process may claim, campaign by campaign; finished cohorts are not in it.",
    ),
    partial(
        "ix_cohort_claim_early",
        cohort,
        "campaign",
        "lease_expires_at",
        where="status = 'collecting' AND judges_early",
        why="Cohorts whose pairs are judged while siblings are missing (R36).",
    ),
    partial(
        "ix_cohort_collecting",
        cohort,
        "collection_deadline_at",
        where="status = 'collecting'",
        why="Collection deadlines that can still pass (R30).",
    ),
    partial(
        "ix_cohort_evaluating",
        cohort,
        "evaluation_deadline_at",
        where=OPEN,
        why="Evaluation deadlines that can still pass (R31).",
    ),
    partial(
        "ix_cohort_settled",
        cohort,
        "settled_at",
        where="settled_at IS NOT NULL AND results_dropped_at IS NULL",
        why="What retention may drop, oldest first (R70).",
    ),
    partial(
        "ix_cohort_payload",
        cohort,
        "settled_at",
        where="settled_at IS NOT NULL AND payload_dropped_at IS NULL AND results_dropped_at IS NULL",
        why="Whose texts and bodies retention may drop, oldest first (R70).",
    ),
    Index("ix_cohort_newest", cohort.c.campaign, cohort.c.id, info={"comment": "Lists of a campaign, newest first."}),
    partial(
        "ix_cohort_failed",
        cohort,
        "campaign",
        "id",
        where="status = 'failed'",
        why="Lists and counts of failures.",
    ),
    partial(
        "ix_api_token_live",
        api_token,
        "campaign",
        where="revoked_at IS NULL",
        why="Tokens that still count, by campaign.",
    ),
)

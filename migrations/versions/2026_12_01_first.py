"""The first schema: all tables, views, rules and indexes.

Why: a cohort, its members, comparisons and rewards outlive every process, and the database keeps the rules.
Deploy: before the first start; `cohortd serve` does it by itself in an empty database.
Locks and time on 100M rows: none, the database is empty.
Way back: drops everything, rewards included; only for a database that holds nothing worth keeping.

The statements are frozen as SQL beside this file, one file an engine, made once from the metadata in `cohortd.store`.
A later change of the metadata is a migration of its own and never touches them.
"""

from __future__ import annotations

from pathlib import Path

from alembic import context, op

revision = "2026_12_01_first"
down_revision = None
branch_labels = None
depends_on = None

SEPARATOR = "\n-- next statement\n"
FILES = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    """Create everything."""
    _run("up")


def downgrade() -> None:
    """Drop everything."""
    _run("down")


def _run(direction: str) -> None:
    engine = context.get_context().dialect.name
    for statement in (FILES / f"{revision}.{direction}.{engine}.sql").read_text("utf-8").split(SEPARATOR):
        if context.is_offline_mode():
            context.get_context().impl.static_output(statement.strip() + ";\n")
        else:
            op.get_bind().exec_driver_sql(statement)

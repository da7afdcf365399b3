"""The whole schema in the order in which it is created: tables, indexes, rules, views, comments."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Dialect
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from cohortd.store.clock import Engine
from cohortd.store.indexes import INDEXES
from cohortd.store.rules import RULES
from cohortd.store.tables import metadata
from cohortd.store.views import VIEWS, create_view

_DIALECTS: dict[Engine, Dialect] = {"sqlite": sqlite.dialect(), "postgresql": postgresql.dialect()}  # type: ignore[no-untyped-call]


def statements(engine: Engine) -> Iterator[str]:
    """Each statement that makes an empty database into a current one, the one row of `service_state` included."""
    dialect = _DIALECTS[engine]
    for table in metadata.sorted_tables:
        yield _text(CreateTable(table).compile(dialect=dialect))
    for index in INDEXES:
        yield _text(CreateIndex(index).compile(dialect=dialect))
    for rule in RULES:
        yield from rule.sqlite() if engine == "sqlite" else rule.postgresql()
    for name in VIEWS:
        yield create_view(name, engine)
    if engine == "postgresql":
        yield from _postgres_storage()
        yield from _postgres_comments()
    yield "INSERT INTO service_state (id) VALUES (1)"


def _text(compiled: object) -> str:
    return "\n".join(line.rstrip() for line in str(compiled).strip().splitlines())


def _postgres_storage() -> Iterator[str]:
    """Bodies are compressed already; long texts compress cheaper with lz4 than with pglz (TRIAL 3)."""
    # A server built without lz4 keeps its default.
    yield "ALTER TABLE member_body ALTER COLUMN body SET STORAGE EXTERNAL"
    for table, column in (("member_slot", "answer"), ("member_slot", "reasoning"), ("cohort_group", "conversation")):
        yield (
            f"DO $$ BEGIN ALTER TABLE {table} ALTER COLUMN {column} SET COMPRESSION lz4;\n"
            "EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN NULL; END $$"
        )


def _postgres_comments() -> Iterator[str]:
    for table in metadata.sorted_tables:
        yield f"COMMENT ON TABLE {table.name} IS {_quoted(table.comment)}"
        for column in table.columns:
            yield f"COMMENT ON COLUMN {table.name}.{column.name} IS {_quoted(column.comment)}"
    for index in INDEXES:
        yield f"COMMENT ON INDEX {index.name} IS {_quoted(index.info['comment'])}"
    for name, (comment, _) in VIEWS.items():
        yield f"COMMENT ON VIEW {name} IS {_quoted(comment)}"


def _quoted(text: str | None) -> str:
    return "'" + (text or "").replace("'", "''") + "'"

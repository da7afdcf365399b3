"""How a statement of the hot path is written once and run on both engines.

A transaction of the scribe is a generator that yields `Step`s and receives rows: it has no colour, so the same code is
driven by a thread with `sqlite3` (one hop for a whole batch) and by `asyncpg` (one round trip a step). A step runs its
statement for many parameter rows: SQLite runs it row by row, Postgres once, with a column of each parameter through
`unnest`. The measurements behind this are DESIGN 4 and TRIAL 3.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import BigInteger, Boolean, Float, Integer, LargeBinary, Table

from cohortd.store import clock
from cohortd.store.types import CohortId, Instant

Row = Sequence[Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement in both dialects; `returns` says whether its rows are wanted."""

    name: str
    sqlite: str
    postgresql: str
    returns: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """Run `statement` for each of `rows` (never empty)."""

    statement: Statement
    rows: Sequence[Row]


Transaction = Generator[Step, list[Row], T]


@dataclass(frozen=True, slots=True)
class Now:
    """A value that the database's clock gives; with `plus_s` the parameter that is added to it, in seconds."""

    plus: bool = False


@dataclass(frozen=True, slots=True)
class Literal:
    """A value that is part of the statement's text."""

    sqlite: str
    postgresql: str


def _postgres_type(table: Table, column: str) -> str:
    type_ = table.c[column].type
    if isinstance(type_, Instant):
        return "timestamptz"
    if type_ is CohortId:
        return "uuid"
    for kind, name in ((Boolean, "boolean"), (BigInteger, "bigint"), (Integer, "integer"), (Float, "float8")):
        if isinstance(type_, kind):
            return name
    return "bytea" if isinstance(type_, LargeBinary) else "text"


def insert(name: str, table: Table, columns: dict[str, Now | Literal | None], *, or_ignore: bool = False) -> Statement:
    """An INSERT of many rows; a column that maps to None takes the next parameter.

    With `or_ignore`, a row whose key exists is left alone.
    """
    lite, post, params = [], [], 0
    types: list[str] = []
    for column, source in columns.items():
        if isinstance(source, Literal):
            lite.append(source.sqlite)
            post.append(source.postgresql)
        elif isinstance(source, Now) and not source.plus:
            lite.append(clock.now_sql("sqlite"))
            post.append(clock.now_sql("postgresql"))
        else:
            params += 1
            plus = isinstance(source, Now)
            lite.append(clock.now_sql("sqlite", "?") if plus else "?")
            post.append(clock.now_sql("postgresql", f"u.p{params}") if plus else f"u.p{params}")
            types.append(f"${params}::{'float8' if plus else _postgres_type(table, column)}[]")
    names = ", ".join(columns)
    ignore = " ON CONFLICT DO NOTHING" if or_ignore else ""
    aliases = ", ".join(f"p{number}" for number in range(1, params + 1))
    return Statement(
        name,
        f"INSERT INTO {table.name} ({names}) VALUES ({', '.join(lite)}){ignore}",
        f"INSERT INTO {table.name} ({names}) SELECT {', '.join(post)} "
        f"FROM unnest({', '.join(types)}) AS u({aliases}){ignore}",
    )


def both(name: str, sql: str, *, keys: str, types: str, returns: bool = False) -> Statement:
    """A statement whose two dialects differ only in how parameters and the clock are spelled.

    `keys` names the parameters in order, `types` their Postgres types; the SQL refers to them as `{k.NAME}`, to the
    clock as `{now}`, to the free lease as `{never}`, and says `{using_from}` for the FROM of a SELECT and `{from}` for
    that of an UPDATE, `{delete_using}` for that of a DELETE, where Postgres joins the rows of parameters.
    """
    names = keys.split()
    unnest = ", ".join(f"${number}::{type_}[]" for number, type_ in enumerate(types.split(), 1))
    source = f"unnest({unnest}) AS k({', '.join(names)})"
    return Statement(name, _render(sql, "sqlite", names, ""), _render(sql, "postgresql", names, source), returns)


def _render(sql: str, engine: clock.Engine, names: list[str], source: str) -> str:
    lite = engine == "sqlite"
    words = {
        "now": clock.now_sql(engine),
        "never": clock.never_sql(engine),
        "true": "1" if lite else "TRUE",
        "false": "0" if lite else "FALSE",
        "using_from": "FROM" if lite else f"FROM {source} CROSS JOIN",
        "from": "" if lite else f"FROM {source}",
        "delete_using": "" if lite else f"USING {source}",
    }
    out = sql
    for number, name in enumerate(names, 1):
        value = f"?{number}" if lite else f"k.{name}"
        out = out.replace("{k." + name + "}", value).replace("{now+k." + name + "}", clock.now_sql(engine, value))
    for word, replacement in words.items():
        out = out.replace("{" + word + "}", replacement)
    return out

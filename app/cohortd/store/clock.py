"""The clock that decides: the database's own, plus an offset row that only tests move.

Postgres: `clock_timestamp()`, since `now()` is the start of the transaction and is stale after a wait for a lock.
SQLite: milliseconds from `strftime` (`unixepoch('subsec')` needs 3.42), as text that sorts as time does.
"""

from __future__ import annotations

from typing import Final, Literal

Engine = Literal["sqlite", "postgresql"]

_OFFSET: Final = "(SELECT clock_offset_ms FROM service_state)"
EPOCH: Final = "1970-01-01T00:00:00.000Z"


def now_sql(engine: Engine, plus_s: str | None = None) -> str:
    """SQL for the present instant of the database's clock, `plus_s` (SQL for seconds) later."""
    if engine == "postgresql":
        base = f"(date_trunc('milliseconds', clock_timestamp()) + {_OFFSET} * interval '1 millisecond')"
        return base if plus_s is None else f"({base} + {plus_s} * interval '1 second')"
    offset = f"({_OFFSET} / 1000.0)" if plus_s is None else f"({_OFFSET} / 1000.0 + {plus_s})"
    return f"strftime('%Y-%m-%dT%H:%M:%fZ', 'now', {offset} || ' seconds')"


def seconds_until_sql(engine: Engine, instant: str) -> str:
    """SQL for the seconds from now until `instant` (SQL); negative when it has passed, null when it is null."""
    if engine == "postgresql":
        return f"extract(epoch FROM {instant} - {now_sql(engine)})::float8"
    return f"((julianday({instant}) - julianday({now_sql(engine)})) * 86400.0)"


def never_sql(engine: Engine) -> str:
    """SQL for an instant that has always passed: the lease of a cohort that nobody holds."""
    return f"'{EPOCH}'::timestamptz" if engine == "postgresql" else f"'{EPOCH}'"

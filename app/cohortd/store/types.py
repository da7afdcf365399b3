"""Column types that mean the same on SQLite and Postgres."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, Dialect, Float, Integer, LargeBinary, String, Text
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import TypeDecorator, TypeEngine

ISO_MS = "%Y-%m-%dT%H:%M:%S.%f"


class Instant(TypeDecorator[datetime]):
    """An instant of the database's clock, in UTC, to the millisecond.

    Postgres keeps `timestamptz`; SQLite keeps text such as `2026-12-01T08:00:00.000Z`, which sorts as time does and
    which a person can read.
    """

    impl = String(24)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "postgresql":
            return dialect.type_descriptor(postgresql.TIMESTAMP(timezone=True))
        return dialect.type_descriptor(String(24))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None or dialect.name == "postgresql":
            return value
        return value.astimezone(UTC).strftime(ISO_MS)[:-3] + "Z"

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        return parse_instant(value)


def parse_instant(value: datetime | str | None) -> datetime | None:
    """An aware UTC datetime from what either driver returns for an Instant column."""
    if value is None:
        return None
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return datetime.fromisoformat(value)


def key_text(length: int) -> TypeEngine[str]:
    """Text that is part of a key: sorts by bytes on both engines, so that pages and merges agree."""
    return String(length).with_variant(postgresql.VARCHAR(length, collation="C"), "postgresql")


CohortId = String(36).with_variant(postgresql.UUID(as_uuid=False), "postgresql")
Bytes = LargeBinary()
LongText = Text()
Number = Float(53)
Count = Integer()
BigCount = BigInteger()

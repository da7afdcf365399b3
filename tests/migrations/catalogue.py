"""Everything that a database says of its own schema, as text that can be compared."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import text

from cohortd.store.engine import Database, Location

_POSTGRES = {
    "column": """SELECT table_name || '.' || column_name, data_type || ' ' || is_nullable || ' ' ||
                        coalesce(column_default, '') || ' ' || coalesce(collation_name, '')
                   FROM information_schema.columns WHERE table_schema = 'public'""",
    "constraint": """SELECT conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
                       FROM pg_constraint WHERE connamespace = 'public'::regnamespace""",
    "index": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "trigger": "SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
    "function": "SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
    "view": "SELECT viewname, definition FROM pg_views WHERE schemaname = 'public'",
    "comment": """SELECT c.oid::regclass || '.' || coalesce(a.attname, ''), d.description
                    FROM pg_description d JOIN pg_class c ON c.oid = d.objoid
                    LEFT JOIN pg_attribute a ON a.attrelid = d.objoid AND a.attnum = d.objsubid AND d.objsubid > 0
                   WHERE c.relnamespace = 'public'::regnamespace""",
    "storage": """SELECT attrelid::regclass || '.' || attname, attstorage::text || attcompression::text
                    FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
                   WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND attnum > 0""",
}
_SQLITE = {
    "object": "SELECT type || ' ' || name, coalesce(sql, '') FROM sqlite_master WHERE name NOT LIKE 'alembic%'",
}


async def catalogue(url: str) -> dict[str, str]:
    """Every object of the schema with its definition; what Alembic keeps for itself is left out."""
    database = Database(Location.parse(url))
    queries = _POSTGRES if database.engine == "postgresql" else _SQLITE
    found: dict[str, str] = {}
    try:
        async with database.reader() as connection:
            for kind, query in queries.items():
                for name, definition in (await connection.execute(text(query))).all():
                    if "alembic_version" not in name:
                        found[f"{kind} {name}"] = re.sub(r"\s+", " ", str(definition)).strip()
    finally:
        await database.close()
    return found


async def run(url: str, *statements: str) -> list[Any]:
    """Run statements in one transaction; the rows of the last one."""
    database = Database(Location.parse(url))
    rows: list[Any] = []
    try:
        async with database.reading.connect() as plain:
            connection = await plain.execution_options(sqlite_write=True)
            for statement in statements:
                result = await connection.exec_driver_sql(statement)
                rows = list(result.all()) if result.returns_rows else []
            await connection.commit()
    finally:
        await database.close()
    return rows

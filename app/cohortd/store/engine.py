"""Opening a database: its URL, its readers, its writer, and what must hold before it is served."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from cohortd.errors import SettingsError
from cohortd.store import postgres, sqlite
from cohortd.store.clock import Engine
from cohortd.store.postgres import PostgresWriter
from cohortd.store.sqlite import FileLock, SqliteWriter

READERS: Final = 4


@dataclass(frozen=True, slots=True)
class Location:
    """Where a database is."""

    url: URL

    @classmethod
    def parse(cls, text: str) -> Location:
        """The location that a database URL names, or SettingsError with the forms that are served."""
        try:
            url = make_url(text)
        except Exception as error:
            raise SettingsError(f"COHORTD_DATABASE_URL is not a database URL. {_FORMS}") from error
        if url.drivername in ("sqlite", "postgresql", "postgres"):
            url = url.set(drivername={"sqlite": "sqlite+aiosqlite"}.get(url.drivername, "postgresql+asyncpg"))
        if url.drivername not in ("sqlite+aiosqlite", "postgresql+asyncpg"):
            raise SettingsError(f"COHORTD_DATABASE_URL names {url.drivername!r}, which is not served. {_FORMS}")
        if url.drivername == "sqlite+aiosqlite" and url.database in (None, "", ":memory:"):
            raise SettingsError(f"COHORTD_DATABASE_URL must name a file: a cohort outlives its process. {_FORMS}")
        if url.drivername == "sqlite+aiosqlite" and Path(url.database or "").is_dir():
            raise SettingsError(f"COHORTD_DATABASE_URL must name a file, and {url.database} is a folder. {_FORMS}")
        return cls(_with_parameters(url))

    @property
    def engine(self) -> Engine:
        """Which of the two engines it is."""
        return "sqlite" if self.url.drivername.startswith("sqlite") else "postgresql"

    @property
    def path(self) -> Path:
        """The SQLite file."""
        return Path(self.url.database or "")

    @property
    def dsn(self) -> str:
        """What asyncpg is given for Postgres."""
        query = {"sslmode" if name == "ssl" else name: value for name, value in self.url.query.items()}
        return self.url.set(drivername="postgresql", query=query).render_as_string(hide_password=False)

    def shown(self) -> str:
        """The URL without its password."""
        return self.url.render_as_string(hide_password=True)


def _with_parameters(url: URL) -> URL:
    """The URL with the parameters that reader and writer understand alike: readers say `ssl`, the writer's DSN `sslmode`."""
    names = {"ssl": "ssl", "sslmode": "ssl", "host": "host", "port": "port"} if "asyncpg" in url.drivername else {}
    for name in url.query:
        if name not in names:
            raise SettingsError(f"COHORTD_DATABASE_URL cannot have {name!r} behind its `?`. {_FORMS}")
    return url.set(query={names[name]: value for name, value in url.query.items()})


_FORMS: Final = (
    "Use sqlite+aiosqlite:///./cohortd.db or postgresql+asyncpg://user:password@host/database?sslmode=require."
)


class Database:
    """The readers of one database, and how its writer is made."""

    def __init__(self, location: Location, *, readers: int = READERS) -> None:
        self.location: Final = location
        self.engine: Final[Engine] = location.engine
        self.reading: Final = _reader_engine(location, readers)
        self.lock: Final = FileLock(location.path) if location.engine == "sqlite" else None

    def reader(self) -> _Reading:
        """`async with database.reader() as connection`: a read transaction, closed at the end of the block."""
        return _Reading(self.reading)

    def writer(self, token: int) -> SqliteWriter | PostgresWriter:
        """The writer of a process that goes by this token."""
        if self.location.engine == "sqlite":
            return SqliteWriter(str(self.location.path))
        return PostgresWriter(self.location.dsn, token)

    async def close(self) -> None:
        """Close the readers and give the file lock back."""
        await self.reading.dispose()
        if self.lock is not None:
            self.lock.release()


class _Reading:
    """One connection for the block; a cancelled reader rolls back before its connection is given to another."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._connection: AsyncConnection | None = None

    async def __aenter__(self) -> AsyncConnection:
        self._connection = await self._engine.connect()
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        if self._connection is not None:
            await asyncio.shield(self._connection.close())


def _reader_engine(location: Location, readers: int) -> AsyncEngine:
    if location.engine == "postgresql":
        return create_async_engine(
            location.url,
            pool_size=readers,
            max_overflow=readers,
            pool_timeout=10,
            pool_pre_ping=True,
            connect_args={
                "timeout": postgres.CONNECT_TIMEOUT_S,
                "server_settings": {
                    "application_name": "cohortd reader",
                    "statement_timeout": str(postgres.STATEMENT_TIMEOUT_MS),
                    "timezone": "UTC",
                    "jit": "off",
                },
            },
        )
    engine = create_async_engine(location.url, pool_size=readers, max_overflow=0, pool_timeout=10)
    event.listen(engine.sync_engine, "connect", _prepare_sqlite)
    event.listen(engine.sync_engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    """The pragmas on a connection of the pool; the driver's own transactions are switched off."""
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in sqlite.PRAGMAS:
        cursor.execute(pragma)
    cursor.close()


def _begin_sqlite(connection: Any) -> None:
    """A deferred read-then-write fails at once whatever `busy_timeout` says, so writers begin as writers."""
    writes = connection.get_execution_options().get("sqlite_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

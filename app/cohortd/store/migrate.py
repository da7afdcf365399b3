"""Schema versions: what a database has, what this program wants, and the way from one to the other."""

from __future__ import annotations

import contextlib
import io
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from cohortd.errors import DatabaseInUse, DatabaseUnavailable, SchemaError
from cohortd.store.engine import Location
from cohortd.store.sqlite import FileLock, prepare

# One migration at a time over all machines; several replicas may start at once.
ADVISORY_LOCK: Final = 0x636F686F72746400
LOCK_TIMEOUT: Final = "10s"
PAGE_SIZE: Final = 8192


def _root() -> Path:
    """Where `alembic.ini` and `migrations/` are: in the installed package, or in the source tree."""
    here = Path(__file__).resolve().parent.parent
    packaged = here / "_migrations"
    return packaged if packaged.is_dir() else here.parent.parent


def config(**attributes: Any) -> Config:
    """Alembic's configuration, with what env.py is given."""
    found = Config(str(_root() / "alembic.ini"))
    found.attributes.update(attributes)
    return found


def head() -> str:
    """The revision that this program serves."""
    revision = ScriptDirectory.from_config(config()).get_current_head()
    if revision is None:
        raise SchemaError("This installation holds no migrations; install cohortd again.")
    return revision


def known() -> frozenset[str]:
    """Every revision that this program knows."""
    return frozenset(script.revision for script in ScriptDirectory.from_config(config()).walk_revisions())


def lock_of(location: Location) -> FileLock | None:
    """The lock on a SQLite file that serving, migrating and copying exclude each other by."""
    return FileLock(location.path) if location.engine == "sqlite" else None


async def current(location: Location) -> str | None:
    """The database's revision; None when it is empty."""
    if location.engine == "sqlite" and not location.path.exists():
        return None
    async with _engine(location) as engine, engine.connect() as connection:
        return await connection.run_sync(_current)


def _current(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


async def check(location: Location, *, revision: str | None = None) -> str:
    """The revision, when it is the one that this program serves; SchemaError or DatabaseInUse says what to do else."""
    found = await current(location) if revision is None else revision
    wanted = head()
    if found is None:
        raise SchemaError("The database is empty. Run `cohortd db upgrade`; `cohortd serve` does it by itself.")
    if found not in known():
        raise SchemaError(
            f"The database's schema, {found}, is newer than this program's, {wanted}. Install a newer cohortd."
        )
    if found != wanted:
        raise SchemaError(
            f"The database's schema is {found}, this program needs {wanted}. Run `cohortd db upgrade`, or start with --migrate."
        )
    moved_to = await _moved_to(location)
    if moved_to is not None:
        raise DatabaseInUse(f"This database was copied to {moved_to} and must not be served any more. Serve that one.")
    return found


async def _moved_to(location: Location) -> str | None:
    async with _engine(location) as engine, engine.connect() as connection:
        value: str | None = (await connection.execute(text("SELECT moved_to FROM service_state"))).scalar()
        return value


async def ensure(location: Location, *, migrate: bool) -> str:
    """The current revision, after creating the schema in an empty database, or migrating an older one if told to."""
    found = await current(location)
    if found is None or (migrate and found in known() and found != head()):
        await upgrade(location)
        found = None
    return await check(location, revision=found)


async def upgrade(location: Location, revision: str = "head") -> None:
    """Bring the schema up to the revision; a failure leaves the database at the last whole one."""
    await _migrate(location, lambda found: command.upgrade(found, revision))


async def downgrade(location: Location, revision: str) -> None:
    """Bring the schema down to the revision (`base` drops everything)."""
    await _migrate(location, lambda found: command.downgrade(found, revision))


def upgrade_sql(engine: str, revision: str = "head") -> str:
    """The statements of an upgrade, for somebody else to run."""
    output = io.StringIO()
    found = config(engine=engine)
    found.output_buffer = output
    with _known_revision():
        command.upgrade(found, revision, sql=True)
    return output.getvalue()


@contextlib.contextmanager
def _known_revision() -> Iterator[None]:
    try:
        yield
    except CommandError as error:
        raise SchemaError(f"{error}. `cohortd db current --json` names the revision and the newest one.") from error


async def _migrate(location: Location, run: Callable[[Config], None]) -> None:
    if location.engine == "sqlite":
        _prepare_file(location.path)
    async with _engine(location) as engine, engine.connect() as connection:
        if location.engine == "postgresql":
            await connection.execute(text(f"SET lock_timeout = '{LOCK_TIMEOUT}'"))
            await connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": ADVISORY_LOCK})
            await connection.commit()
        with _known_revision():
            await connection.run_sync(lambda sync: run(config(connection=sync)))
        await connection.commit()


def _prepare_file(path: Path) -> None:
    """Write-ahead logging and the page size are the file's own; they are set before its first table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
            prepare(connection, writes=True)
    except sqlite3.Error as error:
        raise DatabaseUnavailable(f"The database at {path} failed: {type(error).__name__}: {error}.") from error


@contextlib.asynccontextmanager
async def _engine(location: Location) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(location.url, poolclass=NullPool)
    if location.engine == "sqlite":
        event.listen(engine.sync_engine, "connect", lambda raw, _: _prepare(raw))
        event.listen(engine.sync_engine, "begin", lambda found: found.exec_driver_sql("BEGIN IMMEDIATE"))
    try:
        yield engine
    except (OSError, DBAPIError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        reason = type(error.orig).__name__ if isinstance(error, DBAPIError) else type(error).__name__
        raise DatabaseUnavailable(f"The database at {location.shown()} failed: {reason}.") from error
    finally:
        await engine.dispose()


def _prepare(raw: Any) -> None:
    raw.isolation_level = None
    raw.execute("PRAGMA foreign_keys = ON")

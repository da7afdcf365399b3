"""SQLite: the pragmas, the one writing connection in a thread of its own, and the lock on the served file."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from cohortd.errors import DatabaseInUse, DatabaseUnavailable
from cohortd.store.statements import Row, Step, Transaction
from cohortd.store.writer import Unavailable

T = TypeVar("T")

BUSY_TIMEOUT_MS: Final = 5000
PRAGMAS: Final = (
    "PRAGMA foreign_keys = ON",
    "PRAGMA synchronous = FULL",
    f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}",
    "PRAGMA temp_store = MEMORY",
)


def prepare(connection: Any, *, writes: bool) -> None:
    """Make a driver connection keep the schema's rules; a writer also sees to write-ahead logging."""
    connection.isolation_level = None
    for pragma in PRAGMAS:
        connection.execute(pragma)
    if writes:
        connection.execute("PRAGMA cache_size = -16384")
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise DatabaseUnavailable(
                f"SQLite refused write-ahead logging here (journal mode {mode!r}). "
                "Network file systems do not carry it: put the database on a local disk, or use Postgres."
            )


class SqliteWriter:
    """Runs each transaction in one hop to one thread, on the raw driver (TRIAL 5.1)."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="scribe")
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    async def run(self, make: Callable[[], Transaction[T]]) -> T:
        """Commit the transaction before returning; Unavailable when the file is locked, full or unreadable."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, make)

    async def execute(self, sql: str) -> None:
        """Run one statement outside a transaction (pragmas, checkpoints, the voiding of leases)."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._execute, sql)

    async def close(self) -> None:
        """Close the connection and end the thread; once is enough."""
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = sqlite3.connect(self._path, check_same_thread=False, cached_statements=512)
            try:
                prepare(connection, writes=True)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _execute(self, sql: str) -> None:
        try:
            self._open().execute(sql).fetchall()
        except sqlite3.OperationalError as error:
            raise Unavailable(f"SQLite: {error}") from error

    def _run(self, make: Callable[[], Transaction[T]]) -> T:
        try:
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            raise Unavailable(f"SQLite: {error}") from error
        transaction = make()
        try:
            rows: list[Row] = []
            step = next(transaction)
            while True:
                rows = _perform(connection, step)
                step = transaction.send(rows)
        except StopIteration as end:
            value: T = end.value
            return self._commit(connection, value)
        except sqlite3.OperationalError as error:
            _roll_back(connection)
            raise Unavailable(f"SQLite: {error}") from error
        except BaseException:
            _roll_back(connection)
            raise

    def _commit(self, connection: sqlite3.Connection, value: T) -> T:
        try:
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            _roll_back(connection)
            raise Unavailable(f"SQLite: {error}") from error
        return value

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _perform(connection: sqlite3.Connection, step: Step) -> list[Row]:
    sql = step.statement.sqlite
    if not step.statement.returns:
        connection.executemany(sql, step.rows)
        return []
    found: list[Row] = []
    for row in step.rows:
        found += connection.execute(sql, row).fetchall()
    return found


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


class FileLock:
    """Held while a SQLite file is served, migrated or copied; the kernel drops it with the process."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".lock")
        self._handle: int | None = None

    def acquire(self) -> None:
        """Take the lock, or raise DatabaseInUse at once."""
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            raise DatabaseInUse(
                f"Another process serves or changes {self._path.stem}. One process serves a SQLite file: stop that one "
                "first, or use Postgres for several."
            ) from error
        self._handle = handle

    def release(self) -> None:
        """Give the lock back."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

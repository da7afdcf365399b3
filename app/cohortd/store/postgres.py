"""Postgres: the one writing connection, and the lock that says that its process lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

import asyncpg

from cohortd.store.statements import Row, Step, Transaction
from cohortd.store.writer import Clash, Unavailable

T = TypeVar("T")

CONNECT_TIMEOUT_S: Final = 5.0
STATEMENT_TIMEOUT_MS: Final = 30_000
# A process that is stopped in the middle of a transaction holds its rows' locks no longer than this: nobody else could
# admit to, judge or settle those cohorts meanwhile.
IDLE_IN_TRANSACTION_MS: Final = 5_000
# Classes of errors that say nothing about the statement: connection, resources, operator intervention, read-only.
_AWAY_CLASSES: Final = ("08", "53", "57", "58", "25006", "55P03")
_CLASHES: Final = ("40001", "40P01")


def unavailable(error: BaseException) -> Unavailable | Clash | None:
    """What the error means for the transaction, if it is the database's and not the statement's."""
    if isinstance(error, asyncpg.PostgresError):
        state = str(error.sqlstate or "")
        if state in _CLASHES:
            return Clash(f"Postgres {state}: {type(error).__name__}")
        return Unavailable(f"Postgres {state}: {type(error).__name__}") if state.startswith(_AWAY_CLASSES) else None
    if isinstance(error, (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError, TimeoutError)):
        return Unavailable(f"Postgres: {type(error).__name__}")
    return None


async def connect(dsn: str, name: str) -> asyncpg.Connection[Any]:
    """A connection with the timeouts that every connection of the service has, or Unavailable."""
    try:
        return await asyncpg.connect(
            dsn,
            timeout=CONNECT_TIMEOUT_S,
            server_settings={
                "application_name": f"cohortd {name}",
                "statement_timeout": str(STATEMENT_TIMEOUT_MS),
                "idle_in_transaction_session_timeout": str(IDLE_IN_TRANSACTION_MS),
                "jit": "off",
                "timezone": "UTC",
            },
        )
    except Exception as error:
        known = unavailable(error)
        if known is None:
            raise
        raise known from error


class PostgresWriter:
    """Runs each transaction on one connection, a round trip for each step; reconnects when it was lost."""

    def __init__(self, dsn: str, token: int) -> None:
        self._dsn = dsn
        self._token = token
        self._connection: asyncpg.Connection[Any] | None = None

    async def run(self, make: Callable[[], Transaction[T]]) -> T:
        """Commit the transaction before returning; Unavailable or Clash when the database gave it up."""
        connection = await self._open()
        try:
            await connection.execute("BEGIN")
            value = await _drive(connection, make())
            await connection.execute("COMMIT")
        except BaseException as error:
            await self._abandon(connection)
            known = unavailable(error)
            if known is None:
                raise
            raise known from error
        return value

    async def close(self) -> None:
        """Close the connection; the lock on the token goes with it, so that its leases are over."""
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            try:
                await connection.close(timeout=CONNECT_TIMEOUT_S)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                connection.terminate()

    async def _open(self) -> asyncpg.Connection[Any]:
        if self._connection is None or self._connection.is_closed():
            connection = await connect(self._dsn, "scribe")
            # Shared, since a lost session may hold it for a while. Whoever finds it free knows that the process is gone and its leases are over (DESIGN 5).
            await connection.execute("SELECT pg_advisory_lock_shared($1)", self._token)
            self._connection = connection
        return self._connection

    async def _abandon(self, connection: asyncpg.Connection[Any]) -> None:
        """Roll back; a connection that cannot is thrown away, so that none stays idle in its transaction."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                if not connection.is_closed():
                    await connection.execute("ROLLBACK")
                    return
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            connection.terminate()
        self._connection = None


async def _drive(connection: asyncpg.Connection[Any], transaction: Transaction[T]) -> T:
    try:
        step = next(transaction)
        while True:
            step = transaction.send(await _perform(connection, step))
    except StopIteration as end:
        value: T = end.value
        return value


async def _perform(connection: asyncpg.Connection[Any], step: Step) -> list[Row]:
    columns = list(zip(*step.rows, strict=True))
    if not step.statement.returns:
        await connection.execute(step.statement.postgresql, *columns)
        return []
    return await connection.fetch(step.statement.postgresql, *columns)

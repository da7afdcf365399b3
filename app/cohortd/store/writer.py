"""Who runs a batch's transaction: one thread for SQLite, one connection for Postgres (DESIGN 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from cohortd.errors import DatabaseUnavailable
from cohortd.store.statements import Transaction

T = TypeVar("T")


class Unavailable(DatabaseUnavailable):
    """The database was away, full or busy; whether the transaction committed is unknown, so it may be run again."""


class Clash(DatabaseUnavailable):
    """The engine gave the transaction up in favour of another (40001, 40P01); it may be run again at once."""


class Writer(Protocol):
    """Runs transactions one after the other; each is committed when `run` returns."""

    async def run(self, make: Callable[[], Transaction[T]]) -> T:
        """Run the transaction that `make` gives, which may be asked for again after Unavailable or Clash."""
        ...

    async def close(self) -> None:
        """Give the connection back."""
        ...

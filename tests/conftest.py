"""Fixtures: both engines, fresh databases, and a count of the tests passed on each."""

from __future__ import annotations

import asyncio
import collections
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from cohortd.store import migrate
from cohortd.store.engine import Location
from tests.support.postgres import PostgresServer

# CI tries the same examples every time: what it finds is what the change did. People's machines try new ones.
hypothesis.settings.register_profile("here", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "here")

ENGINES = ("sqlite", "postgres")
_COUNTS: dict[str, collections.Counter[str]] = {}


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A real Postgres; if it cannot start, the tests fail."""
    server = PostgresServer()
    server.start()
    yield server
    server.close()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Each test that asks for a database runs on both engines."""
    name: str = request.param
    return name


@pytest.fixture
def empty_database_url(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database without a schema."""
    if engine == "sqlite":
        yield f"sqlite+aiosqlite:///{tmp_path / 'cohortd.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.create_database()
    yield server.url(name)
    server.drop_database(name)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file that tests copy."""
    path = tmp_path_factory.mktemp("template") / "cohortd.db"
    asyncio.run(migrate.upgrade(Location.parse(f"sqlite+aiosqlite:///{path}")))
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """A migrated Postgres database that tests copy."""
    name = postgres_server.create_database()
    asyncio.run(migrate.upgrade(Location.parse(postgres_server.url(name))))
    return name


@pytest.fixture
def database_url(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a fresh database with the current schema."""
    if engine == "sqlite":
        path = tmp_path / "cohortd.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), path)
        yield f"sqlite+aiosqlite:///{path}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.create_database(request.getfixturevalue("postgres_template"))
    yield server.url(name)
    server.drop_database(name)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count outcomes by engine."""
    if report.when == "call" or report.outcome != "passed":
        name = next((engine for engine in ENGINES if engine in report.nodeid.partition("[")[2]), "no database")
        _COUNTS.setdefault(name, collections.Counter())[report.outcome] += 1


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: Any) -> None:
    """Print what passed on each engine, as the very last lines."""
    if not hasattr(config, "workerinput") and _COUNTS:
        for name in (*ENGINES, "no database"):
            counts = _COUNTS.get(name, collections.Counter())
            print(f"{name}: {counts['passed']} passed, {counts['failed']} failed")

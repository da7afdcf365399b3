"""Migrations: a migrated database is a fresh one, down leaves nothing, and nothing is ever half done."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cohortd.cohorts.lifecycle import STATUSES
from cohortd.errors import DatabaseInUse, SchemaError
from cohortd.store import migrate
from cohortd.store.engine import Location
from cohortd.store.indexes import INDEXES
from cohortd.store.rules import RULES
from cohortd.store.schema import statements
from cohortd.store.tables import metadata
from cohortd.store.views import VIEWS
from tests.migrations.catalogue import catalogue, run
from tests.support.postgres import PostgresServer
from tests.support.service import running

TABLES = {
    "campaign", "cohort_group", "cohort", "member_slot", "member_body", "member_reward", "comparison", "judge_call",
    "judging_profile", "cohort_event", "api_token", "service_state",
}  # fmt: skip


@pytest.fixture
def another_url(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A second database without a schema."""
    if engine == "sqlite":
        yield f"sqlite+aiosqlite:///{tmp_path / 'another.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.create_database()
    yield server.url(name)
    server.drop_database(name)


def statements_of(url: str) -> list[str]:
    """Each statement that makes an empty database a current one."""
    return list(statements(Location.parse(url).engine))


async def test_a_migrated_database_is_a_fresh_one(database_url: str, another_url: str) -> None:
    await run(another_url, *statements_of(another_url))
    fresh, migrated = await catalogue(another_url), await catalogue(database_url)
    assert migrated == fresh
    assert len(fresh) > 50


async def test_everything_of_the_contract_is_there_and_named(engine: str, database_url: str) -> None:
    found = await catalogue(database_url)
    text = "\n".join(f"{name} {definition}" for name, definition in found.items())
    assert {table.name for table in metadata.sorted_tables} == TABLES
    for name in [*TABLES, *VIEWS, *(rule.name for rule in RULES), *(str(index.name) for index in INDEXES)]:
        assert name in text, f"{name} is missing"
    for table in metadata.sorted_tables:
        for constraint in table.constraints:
            assert constraint.name, f"{table.name} has a constraint without a name: batch mode would lose it"
            is_boolean = getattr(constraint, "_type_bound", False)  # Postgres has a type for it
            assert str(constraint.name) in text or (is_boolean and engine == "postgres")
        for column in table.columns:
            assert column.comment, f"{table.name}.{column.name} says nothing of itself"
            if engine == "postgres":
                assert found[f"comment {table.name}.{column.name}"] == column.comment
    assert all(f"'{status}'" in text for status in STATUSES)


@pytest.mark.parametrize("index", [index for index in INDEXES if index.info], ids=lambda index: str(index.name))
async def test_every_index_says_why(index: object, engine: str, database_url: str) -> None:
    found = await catalogue(database_url)
    name = str(index.name)  # type: ignore[attr-defined]
    why = index.info["comment"]  # type: ignore[attr-defined]
    assert len(why) > 20
    if engine == "postgres":
        assert found[f"comment {name}."] == why
    where = index.dialect_options["postgresql"]["where"]  # type: ignore[attr-defined]
    definition = next(text for key, text in found.items() if key.endswith(f" {name}") and "INDEX" in text)
    assert ("WHERE" in definition) == (where is not None)


async def test_down_leaves_nothing_and_up_again_is_the_same(database_url: str) -> None:
    before = await catalogue(database_url)
    async with running(database_url) as service:
        await service.group("g")
    location = Location.parse(database_url)
    await migrate.downgrade(location, "base")
    assert await catalogue(database_url) == {}
    assert await migrate.current(location) is None
    await migrate.upgrade(location)
    assert await catalogue(database_url) == before
    async with running(database_url) as service:
        assert (await service.group("g"))[0].status_code == 200


async def test_upgrading_what_is_current_keeps_every_row(database_url: str) -> None:
    async with running(database_url) as service:
        rewards = [reply.json()["reward"] for reply in await service.group("g")]
    await migrate.upgrade(Location.parse(database_url))
    async with running(database_url) as service:
        assert [reply.json()["reward"] for reply in await service.group("g")] == rewards
        assert len(service.judge.requests) == 0


async def test_the_sql_for_a_database_administrator_gives_the_same_database(
    database_url: str, another_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    location = Location.parse(another_url)
    printed = migrate.upgrade_sql(location.engine)
    if location.engine == "sqlite":
        with sqlite3.connect(location.path) as connection:
            connection.executescript(printed)
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        await server.execute(another_url.rpartition("/")[2], printed)
    assert await catalogue(another_url) == await catalogue(database_url)
    assert await migrate.check(location) == migrate.head()


async def test_a_migration_that_fails_leaves_nothing_behind(empty_database_url: str) -> None:
    # The name of the last view is taken: everything before it has been made by then.
    await run(empty_database_url, "CREATE TABLE judge_quality (x INTEGER)")
    location = Location.parse(empty_database_url)
    before = await catalogue(empty_database_url)
    with pytest.raises(Exception, match=r"(?i)failed|exists"):
        await migrate.upgrade(location)
    assert await catalogue(empty_database_url) == before
    assert await migrate.current(location) is None
    await run(empty_database_url, "DROP TABLE judge_quality")
    await migrate.upgrade(location)
    assert await migrate.check(location) == migrate.head()


async def test_another_schema_is_refused_with_the_command_that_helps(database_url: str, another_url: str) -> None:
    location = Location.parse(database_url)
    await run(database_url, "UPDATE alembic_version SET version_num = '2099_01_01_future'")
    with pytest.raises(SchemaError, match="newer"):
        await migrate.check(location)
    with pytest.raises(SchemaError, match="newer"):
        await migrate.ensure(location, migrate=True)
    with pytest.raises(SchemaError, match="cohortd db upgrade"):
        await migrate.check(Location.parse(another_url))


async def test_a_database_that_was_moved_is_not_served(database_url: str) -> None:
    await run(database_url, "UPDATE service_state SET moved_to = 'postgresql://db/campaign'")
    with pytest.raises(DatabaseInUse, match="postgresql://db/campaign"):
        await migrate.check(Location.parse(database_url))


async def test_processes_that_upgrade_an_empty_database_at_once_agree(empty_database_url: str) -> None:
    command = [sys.executable, "-m", "cohortd", "db", "upgrade", "--database-url", empty_database_url]
    started = [
        await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)
    ]
    ended = await asyncio.gather(*(process.communicate() for process in started))
    statuses = [process.returncode for process in started]
    refused = [error.decode() for (_, error), status in zip(ended, statuses, strict=True) if status]
    # On SQLite one process at a time may change the file, and the others say so.
    assert 0 in statuses
    assert all("Another process" in error for error in refused) if "sqlite" in empty_database_url else not refused
    assert await migrate.check(Location.parse(empty_database_url)) == migrate.head()

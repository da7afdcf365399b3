"""`cohortd db`: the schema of a database."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import click

from cohortd.cli.common import database_option, json_option, settings_of, show
from cohortd.errors import SchemaError
from cohortd.store import migrate
from cohortd.store.engine import Location


@click.group()
def db() -> None:
    """Create, migrate and check the database's schema.

    Example: cohortd db upgrade --database-url postgresql+asyncpg://user@host/cohortd
    """


def _location(context: click.Context, database_url: str | None) -> Location:
    return Location.parse(settings_of(context, database_url=database_url).service.database_url)


def _locked(location: Location, work: Coroutine[Any, Any, None]) -> None:
    """Run while no server serves the SQLite file."""
    lock = migrate.lock_of(location)
    if lock is not None:
        try:
            location.path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except BaseException:
            work.close()
            raise
    try:
        asyncio.run(work)
    finally:
        if lock is not None:
            lock.release()


@db.command()
@database_option
@json_option
@click.option("--sql", is_flag=True, help="Print the statements instead of running them.")
@click.argument("revision", default="head")
@click.pass_context
def upgrade(context: click.Context, database_url: str | None, as_json: bool, sql: bool, revision: str) -> None:
    """Bring the schema up to REVISION (default: the newest).

    Example: cohortd db upgrade --sql > upgrade.sql
    """
    location = _location(context, database_url)
    if sql:
        click.echo(migrate.upgrade_sql(location.engine, revision))
        return
    _locked(location, migrate.upgrade(location, revision))
    found = asyncio.run(migrate.current(location))
    show({"revision": found}, as_json, f"The schema is at {found}.")


@db.command()
@database_option
@json_option
@click.argument("revision")
@click.confirmation_option(prompt="Going down may drop data. Go on?")
@click.pass_context
def downgrade(context: click.Context, database_url: str | None, as_json: bool, revision: str) -> None:
    """Bring the schema down to REVISION; `base` drops everything.

    Example: cohortd db downgrade base --yes
    """
    location = _location(context, database_url)
    _locked(location, migrate.downgrade(location, revision))
    found = asyncio.run(migrate.current(location))
    show({"revision": found}, as_json, f"The schema is at {found or 'base: the database is empty'}.")


@db.command()
@database_option
@json_option
@click.pass_context
def current(context: click.Context, database_url: str | None, as_json: bool) -> None:
    """Print the revision of the database's schema.

    Example: cohortd db current --json
    """
    found = asyncio.run(migrate.current(_location(context, database_url)))
    show({"revision": found, "head": migrate.head()}, as_json, found or "The database is empty.")


@db.command()
@database_option
@json_option
@click.pass_context
def check(context: click.Context, database_url: str | None, as_json: bool) -> None:
    """Exit with 0 when the schema is the one that this program serves, with 1 and the remedy when it is not.

    Example: cohortd db check || cohortd db upgrade
    """
    try:
        found = asyncio.run(migrate.check(_location(context, database_url)))
    except SchemaError as error:
        show({"ok": False, "problem": str(error)}, as_json, f"cohortd: {error}")
        context.exit(1)
    show({"ok": True, "revision": found}, as_json, f"The schema is current: {found}.")

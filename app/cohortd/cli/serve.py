"""`cohortd serve`: the service."""

from __future__ import annotations

import resource
from typing import Any

import click
import structlog
import uvloop

from cohortd import logs
from cohortd.cli.common import database_option, settings_of
from cohortd.errors import SettingsError
from cohortd.http.access import LOOPBACK
from cohortd.http.server import serve as serve_http
from cohortd.settings import Settings
from cohortd.store import migrate
from cohortd.store.engine import Database, Location

log = structlog.get_logger()
OPEN_FILES = 65_536


@click.command()
@database_option
@click.option("--host", help="Address to listen on.")
@click.option("--port", type=int, help="Port to listen on; 0 takes a free one.")
@click.option("--role", type=click.Choice(["all", "api", "judge"]), help="Take requests, judge, or both (default).")
@click.option("--migrate", "migrates", is_flag=True, help="Bring an older schema up before serving.")
@click.option("--allow-anonymous", is_flag=True, default=None, help="Listen beyond loopback without tokens.")
@click.option("--allowed-host", "allowed_hosts", multiple=True, help="Host header to serve besides loopback names.")
@click.option("--num-rollouts-per-prompt", type=int, help="Group size where the request names none.")
@click.option("--judge-urls", help="Base URLs of the default judge, comma-separated.")
@click.option("--judge-model", help="Model of the default judge.")
@click.option("--log-format", type=click.Choice(["json", "console"]), help="Log lines for machines or for people.")
@click.pass_context
def serve(context: click.Context, /, migrates: bool, allowed_hosts: tuple[str, ...], **flags: Any) -> None:
    """Serve the API and judge cohorts, until SIGTERM.

    An empty database gets its schema; an older one is refused unless --migrate.

    Example: cohortd serve --judge-urls http://127.0.0.1:8900/v1 --num-rollouts-per-prompt 8
    """
    settings = settings_of(context, allowed_hosts=",".join(allowed_hosts) or None, **flags)
    logs.configure(settings.service.log_level, settings.service.log_format)
    _check_binding(settings)
    _raise_open_files(settings.service.max_waiting_requests)
    location = Location.parse(settings.service.database_url)
    database = Database(location)
    if database.lock is not None:
        location.path.parent.mkdir(parents=True, exist_ok=True)
        database.lock.acquire()
    uvloop.run(_run(settings, database, migrates))


async def _run(settings: Settings, database: Database, migrates: bool) -> None:
    revision = await migrate.ensure(database.location, migrate=migrates)
    log.info("schema", revision=revision)
    await serve_http(settings, database)


def _check_binding(settings: Settings) -> None:
    """Without tokens the service is for this machine alone, unless somebody says otherwise on purpose (R62)."""
    service = settings.service
    if service.host in LOOPBACK:
        return
    if not service.allow_anonymous:
        raise SettingsError(
            f"host={service.host} would let anybody in. Bind to 127.0.0.1, or give --allow-anonymous with --allowed-host."
        )
    if not service.allowed_hosts:
        raise SettingsError(
            "--allow-anonymous needs --allowed-host NAME for each name that clients use, or `*` for any."
        )


def _raise_open_files(waiting: int) -> None:
    """Every waiting request holds a socket (R60)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(OPEN_FILES, hard) if hard != resource.RLIM_INFINITY else OPEN_FILES
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    if soft < waiting + 1000:
        log.warning(
            "open_files", limit=soft, next=f"raise the limit above {waiting + 1000}, or lower max_waiting_requests"
        )

"""What settings may not say, each by itself in range: contradictions, names that lead nowhere, URLs that cannot be asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cohortd.cohorts.identity import campaign_name
from cohortd.errors import Refused
from cohortd.masking import masked_url

if TYPE_CHECKING:
    from cohortd.service_settings import JudgeSettings, ServiceSettings
    from cohortd.settings import Settings


def contradictions(settings: Settings) -> Iterator[str]:
    """A line for each, with the setting's name and the fix; none when the settings may be used."""
    yield from _of_the_service(settings.service)
    for name, judge in settings.judges.items():
        yield from (f"judges.{name}.{line}" for line in _of_a_judge(judge))
    for name in settings.profiles:
        yield from (f"profiles.{name}.{line}" for line in _of_a_profile(settings, name))
    for campaign, profile in settings.campaigns.items():
        try:
            campaign_name(campaign)
        except Refused as refused:
            yield f"campaigns.{campaign}: {refused.detail}"
        if profile not in settings.profiles:
            yield f"campaigns.{campaign}: there is no profile {profile!r}; write [profiles.{profile}] or correct the name"


def _of_the_service(service: ServiceSettings) -> Iterator[str]:
    if service.max_reading_bytes < service.max_body_bytes:
        yield (
            f"max_reading_bytes={service.max_reading_bytes} is below max_body_bytes={service.max_body_bytes}: "
            "the largest body could never be read; raise the one or lower the other"
        )
    if service.role != "all" and service.database_url.startswith("sqlite"):
        yield f"role={service.role} needs Postgres: one process serves a SQLite file; set database_url, or leave role out"
    for host in service.allowed_hosts:
        if "/" in host or host.count(":") == 1:
            yield f"allowed_hosts: {host!r} must be a host name alone, without scheme and port"


def _of_a_judge(judge: JudgeSettings) -> Iterator[str]:
    for url in judge.urls:
        problem = _wrong_with(url)
        if problem is not None:
            yield f"urls: {masked_url(url)!r} {problem}"
    key = judge.api_key
    if key is not None and not (key.isascii() and key.isprintable() and key.strip() == key and key):
        yield "api_key must be printable ASCII without spaces around it; look for a line break at its end"


def _wrong_with(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is no URL"
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return "is no http(s) URL"
    if parts.query or parts.fragment:
        return "must end with its path: what is asked is appended to it"
    return None


def _of_a_profile(settings: Settings, name: str) -> Iterator[str]:
    profile, size = settings.profiles[name], settings.sizes[name]
    yield from profile.problems()
    if profile.judge not in settings.judges:
        yield f"judge: there is no judge {profile.judge!r}; write [judges.{profile.judge}] or correct the name"
    most = settings.service.max_rollouts_per_prompt
    if size is not None and not 1 <= size <= most:
        yield f"num_rollouts_per_prompt must be from 1 to max_rollouts_per_prompt={most}, not {size}"
    if size is not None and size > 1 and profile.on_incomplete == "judge_present" and profile.min_members > size:
        yield f"min_members={profile.min_members} is above num_rollouts_per_prompt={size}: no cohort could be judged early"

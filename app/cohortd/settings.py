"""Settings: each defined once, with meaning, unit, default and limits; read from flags, environment, file, defaults.

Precedence: flag, `COHORTD_*` environment (lists comma-separated), `cohortd.toml`, default. What is unknown or
contradictory stops the start, with the name and the fix. docs/settings.md and `cohortd config show` come from here.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

from cohortd.cohorts.profile import Profile, Route
from cohortd.errors import SettingsError

PREFIX: Final = "COHORTD_"
NOT_SETTINGS: Final = ("COHORTD_CONFIG", "COHORTD_FAILPOINTS")
ALIASES: Final = {"genrm_parse_retries": "judge_answer_retries"}
HIDDEN: Final = "***"


class JudgeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a judge is and how hard it may be asked: `[judges.NAME]`. Nothing of it is frozen with cohorts."""

    urls: Annotated[tuple[str, ...], Meta(description="Base URLs, each ending in `/v1`.")] = ()
    model: Annotated[str, Meta(description="Model to ask for; frozen with the cohort through the profile.")] = ""
    format: Annotated[
        Literal["gym_responses", "chat_roles", "chat_template"], Meta(description="Wire format (R42).")
    ] = "gym_responses"
    api_key: Annotated[str | None, Meta(description="Sent as `Authorization: Bearer`; never shown.")] = None
    max_output_tokens: Annotated[int, Meta(description="Tokens that an answer may have.")] = 16384
    temperature: Annotated[float, Meta(description="Sampling temperature.")] = 0.6
    top_p: Annotated[float, Meta(description="Nucleus of the sampling.")] = 0.95
    concurrency: Annotated[int, Meta(description="Calls in flight at each endpoint.")] = 256

    def __repr__(self) -> str:
        return f"JudgeSettings(urls={len(self.urls)}, model={self.model!r}, format={self.format!r})"


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the service runs; none of it is frozen with cohorts."""

    database_url: Annotated[
        str, Meta(description="`sqlite+aiosqlite:///PATH`, or `postgresql+asyncpg://USER:PASSWORD@HOST/DATABASE`.")
    ] = "sqlite+aiosqlite:///./cohortd.db"
    host: Annotated[str, Meta(description="Address to listen on; beyond loopback only with --allow-anonymous.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Meta(description="Port to listen on; 0 takes a free one.")] = 8400
    lease_s: Annotated[float, Meta(description="How long a claim holds without renewal.", extra={"unit": "s"})] = 15.0
    drain_s: Annotated[
        float, Meta(description="After SIGTERM: how long verdicts in flight are still stored.", extra={"unit": "s"})
    ] = 10.0
    database_wait_s: Annotated[
        float, Meta(description="How long a request waits for a database that is away.", extra={"unit": "s"})
    ] = 60.0
    shutdown_reply: Annotated[
        Literal["close", "503"],
        Meta(description="Parked Gym requests at shutdown: closed without a reply (Gym's client sends again), or 503."),
    ] = "close"
    allow_anonymous: Annotated[
        bool, Meta(description="Listen beyond loopback without tokens; needs allowed_hosts.")
    ] = False
    allowed_hosts: Annotated[
        tuple[str, ...], Meta(description="Host headers that are served besides loopback names; `*` for any.")
    ] = ()
    max_body_bytes: Annotated[int, Meta(description="Largest request body; more is 413.", extra={"unit": "bytes"})] = (
        32 * 2**20
    )
    max_reading_bytes: Annotated[
        int, Meta(description="All bodies being read at once; more is 429.", extra={"unit": "bytes"})
    ] = 2**30
    max_active_cohorts: Annotated[
        int, Meta(description="Cohorts that are not settled; a member that would open one more is 429.")
    ] = 20_000
    max_waiting_requests: Annotated[
        int, Meta(description="Requests that wait for their cohort; more is 429, stored.")
    ] = 20_000
    max_rollouts_per_prompt: Annotated[int, Meta(description="Largest group size.")] = 256
    max_judge_response_bytes: Annotated[
        int, Meta(description="Largest reply of a judge; more counts as a transport fault.", extra={"unit": "bytes"})
    ] = 8 * 2**20
    payload_ttl_s: Annotated[
        float | None,
        Meta(description="Settled cohorts lose bodies and texts after this; unset: never (R70).", extra={"unit": "s"}),
    ] = None
    cohort_result_ttl_s: Annotated[
        float | None,
        Meta(description="Settled cohorts lose their results after this; unset: never (R70).", extra={"unit": "s"}),
    ] = None
    max_terminal_cohorts: Annotated[
        int | None, Meta(description="Settled cohorts that keep their results, newest first; unset: all (R70).")
    ] = None
    judge_eject_after: Annotated[int, Meta(description="Failures in a row that take an endpoint out (R49).")] = 3
    count_failure_classes_as_zero: Annotated[
        tuple[str, ...], Meta(description="Failure classes that /aggregate_metrics counts as reward 0.")
    ] = ()
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Least level that is logged.")
    ] = "info"
    log_format: Annotated[Literal["json", "console"], Meta(description="Log lines for machines or for people.")] = (
        "json"
    )


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is set: the service, its judges, its profiles, and which campaign uses which."""

    service: ServiceSettings
    judges: dict[str, JudgeSettings]
    profiles: dict[str, Profile]
    sizes: dict[str, int | None]  # num_rollouts_per_prompt by profile
    campaigns: dict[str, str]  # profile by campaign

    def profile_name(self, campaign: str) -> str:
        """The profile that a campaign's new cohorts get."""
        return self.campaigns.get(campaign, "default")

    def profile(self, campaign: str, route: Route) -> Profile:
        """The profile of a campaign's new cohorts whose first member comes by this route."""
        return self.profiles[self.profile_name(campaign)].resolved(route)

    def size(self, campaign: str) -> int | None:
        """num_rollouts_per_prompt of the campaign; None when it is not set (R5)."""
        return self.sizes[self.profile_name(campaign)]

    def warnings(self) -> list[str]:
        """What may be set so, but is likely a mistake."""
        found = [f"profile {name}: {line}" for name, profile in self.profiles.items() for line in profile.warnings()]
        for name, size in self.sizes.items():
            if size == 1:
                found.append(
                    f"profile {name}: num_rollouts_per_prompt is 1, so no judge is asked and nothing is stored"
                )
        for name, profile in self.profiles.items():
            if self.sizes[name] != 1 and not self.judges.get(profile.judge, JudgeSettings()).urls:
                found.append(
                    f"profile {name}: judge {profile.judge!r} has no URLs here; its cohorts wait for another process"
                )
        return found

    def shown(self) -> dict[str, Any]:
        """All settings as plain data, secrets masked."""
        judges = {
            name: msgspec.to_builtins(judge) | ({"api_key": HIDDEN} if judge.api_key else {})
            for name, judge in self.judges.items()
        }
        for judge in judges.values():
            judge["urls"] = [masked_url(url) for url in judge["urls"]]
        service = msgspec.to_builtins(self.service)
        service["database_url"] = masked_url(service["database_url"])
        profiles = {
            name: msgspec.to_builtins(profile) | {"num_rollouts_per_prompt": self.sizes[name]}
            for name, profile in self.profiles.items()
        }
        return {"service": service, "judges": judges, "profiles": profiles, "campaigns": self.campaigns}


def masked_url(url: str) -> str:
    """The URL with its password masked."""
    scheme, separator, rest = url.partition("://")
    credentials, at, host = rest.rpartition("@")
    if not separator or not at:
        return url
    user, colon, _ = credentials.partition(":")
    return f"{scheme}://{user}{colon + HIDDEN if colon else ''}@{host}"


_JUDGE_FIELDS: Final = tuple(field.name for field in msgspec.structs.fields(JudgeSettings))
_FROZEN_JUDGE_FIELDS: Final = ("model", "format", "max_output_tokens", "temperature", "top_p")
_PROFILE_FIELDS: Final = tuple(field.name for field in msgspec.structs.fields(Profile))
_SERVICE_FIELDS: Final = tuple(field.name for field in msgspec.structs.fields(ServiceSettings))
SIZE: Final = "num_rollouts_per_prompt"


def load(
    flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None, config: Path | None = None
) -> Settings:
    """The settings in force, or SettingsError with the name of what is wrong and how to put it right."""
    environ = os.environ if environ is None else environ
    document = _read_file(config, environ)
    named = _from_environment(environ) | {name: value for name, value in (flags or {}).items() if value is not None}
    service, judge, profile = _sort(named)
    file_judges, file_profiles, campaigns = _sections(document)
    service_settings = _convert(ServiceSettings, {**_file_service(document), **service}, "")
    profiles, sizes = _profiles(file_profiles, profile)
    judges = _judges(file_judges, judge, profiles["default"].judge)
    profiles = {
        name: _with_judge(p, judges.get(p.judge), file_profiles.get(name, {}), profile) for name, p in profiles.items()
    }
    settings = Settings(service=service_settings, judges=judges, profiles=profiles, sizes=sizes, campaigns=campaigns)
    _check(settings)
    return settings


def _read_file(config: Path | None, environ: Mapping[str, str]) -> dict[str, Any]:
    named = config or (Path(environ["COHORTD_CONFIG"]) if environ.get("COHORTD_CONFIG") else None)
    path = named or Path("cohortd.toml")
    if not path.exists():
        if named is not None:
            raise SettingsError(f"The settings file {path} does not exist; correct --config or COHORTD_CONFIG.")
        return {}
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"The settings file {path} is not TOML: {error}") from error


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environ.items()
        if name.startswith(PREFIX) and name not in NOT_SETTINGS and not name.startswith("COHORTD_TEST_")
    }


def _sort(named: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Settings by flag or environment, sorted into the service's, the default judge's and the default profile's."""
    service: dict[str, Any] = {}
    judge: dict[str, Any] = {}
    profile: dict[str, Any] = {}
    for name, value in named.items():
        if name in _SERVICE_FIELDS:
            service[name] = value
        elif name == "judge_name":
            profile["judge"] = value
        elif name.startswith("judge_") and name.removeprefix("judge_") in _JUDGE_FIELDS:
            judge[name.removeprefix("judge_")] = value
        elif name in _PROFILE_FIELDS or name in ALIASES or name == SIZE:
            _put(profile, name, value)
        else:
            raise SettingsError(f"{PREFIX}{name.upper()} is not a setting. {_nearest(name)}")
    return service, judge, profile


def _put(profile: dict[str, Any], name: str, value: Any) -> None:
    target = ALIASES.get(name, name)
    if target in profile and str(profile[target]) != str(value):
        alias = next(alias for alias, canonical in ALIASES.items() if canonical == target)
        raise SettingsError(f"{target} and its alias {alias} are both set and differ; set one of them.")
    profile[target] = value


def _nearest(name: str) -> str:
    known = [*_SERVICE_FIELDS, *_PROFILE_FIELDS, *(f"judge_{field}" for field in _JUDGE_FIELDS), SIZE, "judge_name"]
    close = difflib.get_close_matches(name, known, 1)
    return f"Did you mean {PREFIX}{close[0].upper()}?" if close else "`cohortd config show` lists them all."


def _file_service(document: Mapping[str, Any]) -> dict[str, Any]:
    plain = {name: value for name, value in document.items() if name not in ("judges", "profiles", "campaigns")}
    for name in plain:
        if name not in _SERVICE_FIELDS:
            raise SettingsError(f"{name} in the settings file is not a setting of the service. {_nearest(name)}")
    return plain


def _sections(document: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    for section in ("judges", "profiles", "campaigns"):
        tables = document.get(section, {})
        if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
            raise SettingsError(f"[{section}] in the settings file holds tables, such as [{section}.NAME].")
    campaigns = {}
    for name, table in document.get("campaigns", {}).items():
        if set(table) != {"profile"}:
            raise SettingsError(f"[campaigns.{name}] names its profile and nothing else.")
        campaigns[name] = table["profile"]
    return document.get("judges", {}), document.get("profiles", {}), campaigns


def _profiles(
    tables: Mapping[str, Any], default: Mapping[str, Any]
) -> tuple[dict[str, Profile], dict[str, int | None]]:
    profiles: dict[str, Profile] = {}
    sizes: dict[str, int | None] = {}
    for name in {"default": None, **tables}:
        values = _extended(name, tables, default, ())
        size = values.pop(SIZE, None)
        profiles[name] = _convert(Profile, values, f"profiles.{name}.")
        sizes[name] = None if size is None else _convert_one(size, int, SIZE)
    return profiles, sizes


def _extended(
    name: str, tables: Mapping[str, Any], default: Mapping[str, Any], seen: tuple[str, ...]
) -> dict[str, Any]:
    """A profile's own values over those of the profile that it extends; flags and environment set the default one."""
    if name in seen:
        raise SettingsError(f"profiles.{name} extends itself by way of {', '.join(seen)}.")
    if name != "default" and name not in tables:
        raise SettingsError(f"There is no profile {name!r}; write [profiles.{name}] or correct the name.")
    own: dict[str, Any] = {}
    for field, value in tables.get(name, {}).items():
        if field not in (*_PROFILE_FIELDS, *ALIASES, SIZE, "extends"):
            raise SettingsError(f"profiles.{name}.{field} is not a setting. {_nearest(field)}")
        _put(own, field, value)
    parent = own.pop("extends", None if name == "default" else "default")
    base = {} if parent is None else _extended(parent, tables, default, (*seen, name))
    return {**base, **own, **(default if name == "default" else {})}


def _judges(tables: Mapping[str, Any], default: Mapping[str, Any], default_name: str) -> dict[str, JudgeSettings]:
    values = {name: dict(table) for name, table in tables.items()}
    if default or default_name not in values:
        values.setdefault(default_name, {}).update(default)
    for name, table in values.items():
        for field in table:
            if field not in _JUDGE_FIELDS:
                raise SettingsError(f"judges.{name}.{field} is not a setting. {_nearest('judge_' + field)}")
    return {name: _convert(JudgeSettings, table, f"judges.{name}.") for name, table in values.items()}


def _with_judge(
    profile: Profile, judge: JudgeSettings | None, own: Mapping[str, Any], named: Mapping[str, Any]
) -> Profile:
    """The profile with its judge's model, format and sampling, unless it sets them itself."""
    if judge is None:
        return profile
    changes = {
        f"judge_{field}": getattr(judge, field)
        for field in _FROZEN_JUDGE_FIELDS
        if f"judge_{field}" not in own and f"judge_{field}" not in named
    }
    return msgspec.structs.replace(profile, **changes)


def _convert(kind: type[Any], values: Mapping[str, Any], prefix: str) -> Any:
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    return kind(**{name: _convert_one(value, fields[name].type, prefix + name) for name, value in values.items()})


def _convert_one(value: Any, kind: Any, name: str) -> Any:
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if isinstance(value, str) and get_origin(bare) is tuple:
        value = [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, str) and bare is bool:
        value = {
            "true": True,
            "1": True,
            "yes": True,
            "on": True,
            "false": False,
            "0": False,
            "no": False,
            "off": False,
        }.get(value.strip().lower(), value)
    try:
        return msgspec.convert(value, kind, strict=not isinstance(value, str))
    except msgspec.ValidationError as error:
        shown = HIDDEN if "key" in name or "url" in name else repr(value)
        raise SettingsError(f"{name} cannot be {shown}: {error}.") from error


def _check(settings: Settings) -> None:
    problems = [f"profiles.{name}.{line}" for name, profile in settings.profiles.items() for line in profile.problems()]
    service = settings.service
    problems += [
        f"{name} must be a finite number above 0"
        for name in ("lease_s", "database_wait_s")
        if not 0 < getattr(service, name) < float("inf")
    ]
    problems += [
        f"{name} must be a finite number above 0, or unset"
        for name in ("payload_ttl_s", "cohort_result_ttl_s")
        if (value := getattr(service, name)) is not None and not 0 < value < float("inf")
    ]
    if service.max_terminal_cohorts is not None and service.max_terminal_cohorts < 0:
        problems.append("max_terminal_cohorts must be 0 or more, or unset")
    if not 0 <= service.drain_s < float("inf"):
        problems.append("drain_s must be a finite number, 0 or more")
    problems += [
        f"profiles.{name}.{SIZE} must be from 1 to max_rollouts_per_prompt={service.max_rollouts_per_prompt}, not {size}"
        for name, size in settings.sizes.items()
        if size is not None and not 1 <= size <= service.max_rollouts_per_prompt
    ]
    problems += [
        f"judges.{name}.urls: {masked_url(url)!r} is no http(s) URL"
        for name, judge in settings.judges.items()
        for url in judge.urls
        if not url.startswith(("http://", "https://"))
    ]
    problems += [
        f"judges.{name}.concurrency must be at least 1"
        for name, judge in settings.judges.items()
        if judge.concurrency < 1
    ]
    problems += [
        f"campaigns.{campaign}: there is no profile {name!r}"
        for campaign, name in settings.campaigns.items()
        if name not in settings.profiles
    ]
    if problems:
        raise SettingsError("; ".join(problems) + ".")


def documented() -> Iterator[tuple[str, msgspec.structs.FieldInfo]]:
    """Every setting with its definition, as the environment names it."""
    for field in msgspec.structs.fields(ServiceSettings):
        yield f"{PREFIX}{field.name.upper()}", field
    for field in msgspec.structs.fields(JudgeSettings):
        yield f"{PREFIX}JUDGE_{field.name.upper()}", field
    for field in msgspec.structs.fields(Profile):
        if field.name.removeprefix("judge_") not in _FROZEN_JUDGE_FIELDS:
            yield f"{PREFIX}{'JUDGE_NAME' if field.name == 'judge' else field.name.upper()}", field

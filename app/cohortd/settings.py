"""Settings: each defined once, with meaning, unit, default and limits; read from flags, environment, file, defaults.

Precedence: flag, `COHORTD_*` environment (lists comma-separated), `cohortd.toml`, default. What is unknown or
contradictory stops the start, with the name and the fix. docs/settings.md and `cohortd config show` come from here.
"""

from __future__ import annotations

import difflib
import math
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import msgspec

from cohortd.cohorts.profile import Profile, Route
from cohortd.contradictions import contradictions
from cohortd.errors import SettingsError
from cohortd.masking import HIDDEN, masked_url
from cohortd.service_settings import JudgeSettings, ServiceSettings

PREFIX: Final = "COHORTD_"
NOT_SETTINGS: Final = ("COHORTD_CONFIG", "COHORTD_FAILPOINTS")
ALIASES: Final = {"genrm_parse_retries": "judge_answer_retries"}
DEFAULT_JUDGE: Final = "judge"


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


_JUDGE_FIELDS: Final = tuple(field.name for field in msgspec.structs.fields(JudgeSettings))
_FROZEN_JUDGE_FIELDS: Final = ("model", "format", "max_output_tokens", "temperature", "top_p")
_OF_THE_JUDGE: Final = frozenset(f"judge_{field}" for field in _FROZEN_JUDGE_FIELDS)
_PROFILE_FIELDS: Final = tuple(field.name for field in msgspec.structs.fields(Profile))
_SERVICE_FIELDS: Final = tuple(field.name for field in msgspec.structs.fields(ServiceSettings))
SIZE: Final = "num_rollouts_per_prompt"
_NAMED: Final = (  # what flags and environment may name
    *_SERVICE_FIELDS, *(field for field in _PROFILE_FIELDS if field != "judge"), *(f"judge_{field}" for field in _JUDGE_FIELDS),
    SIZE, "judge_name", *ALIASES,
)  # fmt: skip


def load(
    flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None, config: Path | None = None
) -> Settings:
    """The settings in force, or SettingsError with the name of what is wrong and how to put it right."""
    environ = os.environ if environ is None else environ
    document = _read_file(config, environ)
    named = _from_environment(environ) | {name: value for name, value in (flags or {}).items() if value is not None}
    service, judge, profile = _sort(named)
    file_judges, file_profiles, campaigns = _sections(document)
    service_settings: ServiceSettings = _convert(ServiceSettings, {**_file_service(document), **service}, "")
    service_settings = msgspec.structs.replace(
        service_settings, allowed_hosts=tuple(host.lower() for host in service_settings.allowed_hosts)
    )
    values = {name: _extended(name, file_profiles, profile, ()) for name in {"default": None, **file_profiles}}
    judges = _judges(file_judges, judge, profile, values["default"].get("judge", DEFAULT_JUDGE))
    sizes = {name: _size(name, merged) for name, merged in values.items()}
    profiles = {name: _profile(name, merged, judges) for name, merged in values.items()}
    settings = Settings(service=service_settings, judges=judges, profiles=profiles, sizes=sizes, campaigns=campaigns)
    problems = list(contradictions(settings))
    if problems:
        raise SettingsError("; ".join(problems) + ".")
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
        raise SettingsError(f"The settings file {path} is not TOML: {error}.") from error
    except OSError as error:
        raise SettingsError(f"The settings file {path} cannot be read: {error.strerror}.") from error


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
            if name in _OF_THE_JUDGE:
                profile[name] = value  # above the file's own [profiles.default]
        elif (name in _PROFILE_FIELDS or name in ALIASES or name == SIZE) and name != "judge":
            _put(profile, name, value)
        else:
            raise SettingsError(f"{PREFIX}{name.upper()} is not a setting. {_nearest(name, _NAMED, PREFIX)}")
    return service, judge, profile


def _put(profile: dict[str, Any], name: str, value: Any) -> None:
    target = ALIASES.get(name, name)
    if target in profile and str(profile[target]) != str(value):
        alias = next(alias for alias, canonical in ALIASES.items() if canonical == target)
        raise SettingsError(f"{target} and its alias {alias} are both set and differ; set one of them.")
    profile[target] = value


def _nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    close = difflib.get_close_matches(name.lower(), known, 1)
    if not close:
        return "`cohortd config show` lists them all."
    return f"Did you mean {(prefix + close[0]).upper() if prefix else close[0]}?"


def _file_service(document: Mapping[str, Any]) -> dict[str, Any]:
    plain = {name: value for name, value in document.items() if name not in ("judges", "profiles", "campaigns")}
    for name in plain:
        if name in (*_PROFILE_FIELDS, *ALIASES, SIZE):
            raise SettingsError(f"{name} in the settings file belongs to a profile: write it under [profiles.default].")
        if name not in _SERVICE_FIELDS:
            raise SettingsError(
                f"{name} in the settings file is not a setting of the service. {_nearest(name, _SERVICE_FIELDS)}"
            )
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
        campaigns[name] = _convert_one(table["profile"], str, f"campaigns.{name}.profile")
    return document.get("judges", {}), document.get("profiles", {}), campaigns


def _size(name: str, values: Mapping[str, Any]) -> int | None:
    size: int | None = _convert_one(values[SIZE], int, f"profiles.{name}.{SIZE}") if SIZE in values else None
    return size


def _profile(name: str, values: Mapping[str, Any], judges: Mapping[str, JudgeSettings]) -> Profile:
    """The profile with its judge's model, format and sampling, where it does not set them itself."""
    found: Profile = _convert(
        Profile, {key: value for key, value in values.items() if key != SIZE}, f"profiles.{name}."
    )
    judge = judges.get(found.judge)
    if judge is None:
        return found
    changes = {f"judge_{field}": getattr(judge, field) for field in _FROZEN_JUDGE_FIELDS}
    return msgspec.structs.replace(found, **{key: value for key, value in changes.items() if key not in values})


def _extended(
    name: str, tables: Mapping[str, Any], default: Mapping[str, Any], seen: tuple[str, ...]
) -> dict[str, Any]:
    """A profile's own values over those of the profile that it extends; flags and environment set the default one.

    One that names another judge takes model, format and sampling from that one, not from what it extends.
    """
    if name in seen:
        raise SettingsError(f"profiles.{name} extends itself by way of {', '.join(seen)}.")
    if name != "default" and name not in tables:
        raise SettingsError(f"There is no profile {name!r}; write [profiles.{name}] or correct the name.")
    own: dict[str, Any] = {}
    for field, value in tables.get(name, {}).items():
        if field not in (*_PROFILE_FIELDS, *ALIASES, SIZE, "extends"):
            raise SettingsError(
                f"profiles.{name}.{field} is not a setting. {_nearest(field, (*_PROFILE_FIELDS, SIZE, 'extends'))}"
            )
        _put(own, field, value)
    parent = own.pop("extends", None if name == "default" else "default")
    if parent is None:
        base = {}
    else:
        base = _extended(_convert_one(parent, str, f"profiles.{name}.extends"), tables, default, (*seen, name))
    if own.get("judge", base.get("judge")) != base.get("judge"):
        base = {key: value for key, value in base.items() if key not in _OF_THE_JUDGE}
    return {**base, **own, **(default if name == "default" else {})}


def _judges(
    tables: Mapping[str, Any], named: Mapping[str, Any], profile: Mapping[str, Any], default: Any
) -> dict[str, JudgeSettings]:
    """The judges of the file, and the default profile's, which flags and environment can set without a file."""
    values = {name: dict(table) for name, table in tables.items()}
    name = _convert_one(default, str, "profiles.default.judge")
    if named or name == DEFAULT_JUDGE or (not tables and "judge" in profile):
        values[name] = {**values.get(name, {}), **named}
    for name, table in values.items():
        for field in table:
            if field not in _JUDGE_FIELDS:
                raise SettingsError(f"judges.{name}.{field} is not a setting. {_nearest(field, _JUDGE_FIELDS)}")
    return {name: _convert(JudgeSettings, table, f"judges.{name}.") for name, table in values.items()}


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
        converted = msgspec.convert(value, kind, strict=not isinstance(value, str))
    except msgspec.ValidationError as error:
        shown = HIDDEN if "key" in name or "url" in name else repr(value)
        words = [
            word for option in (bare, *get_args(bare)) if get_origin(option) is Literal for word in get_args(option)
        ]
        why = f"it is one of {', '.join(words)}" if words else str(error)
        raise SettingsError(f"{name} cannot be {shown}: {why}.") from error
    if isinstance(converted, float) and not math.isfinite(converted):
        raise SettingsError(f"{name} must be a finite number, not {converted}.")
    return converted


def documented() -> Iterator[tuple[str, msgspec.structs.FieldInfo]]:
    """Every setting with its definition, as the environment names it."""
    for field in msgspec.structs.fields(ServiceSettings):
        yield f"{PREFIX}{field.name.upper()}", field
    for field in msgspec.structs.fields(JudgeSettings):
        yield f"{PREFIX}JUDGE_{field.name.upper()}", field
    for field in msgspec.structs.fields(Profile):
        if field.name.removeprefix("judge_") not in _FROZEN_JUDGE_FIELDS:
            yield f"{PREFIX}{'JUDGE_NAME' if field.name == 'judge' else field.name.upper()}", field

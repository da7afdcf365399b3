"""Pages of docs/ that are written from the code: `ops/docs` writes them, a test says when they have fallen behind."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec
from ops.lib.rules import rules_page

from cohortd.cohorts.lifecycle import FAILURE_KINDS, MASKED_FAILURES
from cohortd.cohorts.profile import ROUTE_DEFAULTS
from cohortd.errors import CODES, remedy_of
from cohortd.service_settings import JudgeSettings, ServiceSettings
from cohortd.settings import PREFIX, SIZE, documented

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PARTS: Final = ("The service", "The default judge", "The default profile")

SETTINGS_HEAD: Final = """# Settings

Written by `ops/docs` from the definitions; do not edit.

A setting comes from a flag of `cohortd serve`, else the environment variable named here, else `cohortd.toml` (in the
working directory, or where `--config` or `COHORTD_CONFIG` points), else its default. Lists are comma-separated in the
environment. In the file a setting of the service stands at the top by its name in lower case, without the prefix; those of
judges stand under `[judges.NAME]` without `judge_`, and those of the profile under `[profiles.NAME]`.

What belongs to the profile is frozen with each cohort by its first member: a change never touches a cohort that exists.
"""

SIZE_ROW: Final = (
    "How many rollouts a group has, where the request does not say (R4). Without it, requests must send "
    "`_ng_group_size`. 1 asks no judge: every rollout gets `default_score`."
)


def settings_page() -> str:
    """docs/settings.md: every setting with type, unit, default and meaning."""
    rows: dict[str, list[str]] = {title: [] for title in PARTS}
    for title, name, field in _sorted():
        rows[title].append(_row(name, field))
    rows["The default profile"].insert(0, f"| `{PREFIX}{SIZE.upper()}` | integer | not set | {SIZE_ROW} |")
    body = [SETTINGS_HEAD]
    for title, lines in rows.items():
        body.append(
            f"## {title}\n\n| setting | type | default | meaning |\n|---|---|---|---|\n" + "\n".join(lines) + "\n"
        )
    return "\n".join(body)


def _sorted() -> Iterator[tuple[str, str, msgspec.structs.FieldInfo]]:
    """(title of its part, name, definition) of every setting, in the order of `documented`."""
    service = len(msgspec.structs.fields(ServiceSettings))
    judges = len(msgspec.structs.fields(JudgeSettings))
    for number, (name, field) in enumerate(documented()):
        yield PARTS[(number >= service) + (number >= service + judges)], name, field


def _row(name: str, field: msgspec.structs.FieldInfo) -> str:
    kind, description, unit = _unwrapped(field.type)
    default = _shown(None if field.default is msgspec.NODEFAULT else field.default)
    if field.name in ROUTE_DEFAULTS:
        default = ", ".join(f"`{value}` ({route} routes)" for route, value in ROUTE_DEFAULTS[field.name].items())
    return f"| `{name}` | {kind}{f', {unit}' if unit else ''} | {default} | {description} |"


def _unwrapped(kind: Any) -> tuple[str, str, str]:
    """(name of the type, description, unit)."""
    description = unit = ""
    if get_origin(kind) is Annotated:
        kind, *notes = get_args(kind)
        for note in notes:
            if isinstance(note, msgspec.Meta):
                description = note.description or description
                unit = (note.extra or {}).get("unit", unit)
    return _named(kind), description, unit


def _named(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        return _unwrapped(kind)[0]
    if get_origin(kind) is Literal:
        return " \\| ".join(f"`{value}`" for value in get_args(kind))
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(_named(part) for part in get_args(kind) if part is not type(None))
    if get_origin(kind) is tuple:
        return "list"
    return {int: "integer", float: "number", str: "text", bool: "`true` \\| `false`"}.get(kind, str(kind))


def _shown(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if value in ((), ""):
        return "empty"
    return f"`{value}`"


ERRORS_HEAD: Final = """# Errors

Written by `ops/docs` from the definitions; do not edit.

Every refusal is a problem document (RFC 9457) with a `code` that stays, a `detail` that says what is wrong here and what
to do, and no prompt, answer or secret. `Retry-After` comes only with those whose identical request can succeed later: all
others want something changed first.

## Codes

| code | status | why | what to do | Retry-After |
|---|---|---|---|---|
"""

FAILURES_HEAD: Final = """
## How a cohort fails

A failed cohort has no reward, and never gets one: in SQL the rewards are NULL, `cohort.failure_kind` and
`cohort.failure_reason` say why. The trainer is told by a problem document or, where the judge is to blame, by a 200 with
`reward: 0.0`, `mask_sample: true` and `failure_kind: "judge_failed"`, a placeholder that must not be trained on.

| failure_kind | when | the trainer gets | what to do |
|---|---|---|---|
"""


def errors_page() -> str:
    """docs/errors.md: every code with status, cause and remedy, and every way in which a cohort fails."""
    codes = [
        f"| `{name}` | {code.status} | {code.cause} | {code.remedy} | "
        f"{f'{code.retry_after_s} s' if code.retry_after_s else ''} |"
        for name, code in CODES.items()
    ]
    failures = [
        f"| `{kind}` | {CODES[kind].cause} | {'a masked 200' if kind in MASKED_FAILURES else f'503 `{kind}`'} | "
        f"{remedy_of(kind)} |"
        for kind in FAILURE_KINDS
    ]
    return ERRORS_HEAD + "\n".join(codes) + "\n" + FAILURES_HEAD + "\n".join(failures) + "\n"


PAGES: Final[dict[str, Callable[[], str]]] = {
    "settings.md": settings_page,
    "errors.md": errors_page,
    "rules.md": rules_page,
}

if __name__ == "__main__":
    for file, page in PAGES.items():
        (DOCS / file).write_text(page(), "utf-8")
        print(f"wrote docs/{file}", file=sys.stderr)

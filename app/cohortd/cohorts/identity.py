"""Who a response belongs to: group, attempt and slot, from what the request says (SPEC R1-R5, R8)."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from cohortd.errors import Refused

Kind = Literal["explicit", "legacy"]
INDEX_LIMIT: Final = 2**31
TEXT_LIMIT: Final = 256
_CAMPAIGN: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_REJUDGE: Final = ".rejudge"
_PLAIN: Final = re.compile(r"[ -~]+")
UNSET: Final = msgspec.UNSET


@dataclass(frozen=True, slots=True, order=True)
class GroupKey:
    """Key of a group; groups are locked in its order everywhere."""

    campaign: str
    kind: str
    group_id: str

    def parts(self) -> tuple[str, str, str]:
        """Campaign, kind and group id."""
        return (self.campaign, self.kind, self.group_id)


@dataclass(frozen=True, slots=True)
class LegacyParts:
    """What a legacy key was made of, for people to find it by."""

    task_index: int | None
    prompt_id: str | None


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Where a response belongs. `size` is None when the request names none."""

    key: GroupKey
    attempt: int
    rollout_index: int
    size: int | None
    legacy: LegacyParts | None
    attempt_defaulted: bool


class CoordinateFields(msgspec.Struct, kw_only=True):
    """The coordinates as a request names them: canonical names and their plain aliases, any JSON value."""

    ng_group_id: Any = msgspec.field(name="_ng_group_id", default=UNSET)
    ng_group_attempt: Any = msgspec.field(name="_ng_group_attempt", default=UNSET)
    ng_rollout_index: Any = msgspec.field(name="_ng_rollout_index", default=UNSET)
    ng_task_index: Any = msgspec.field(name="_ng_task_index", default=UNSET)
    ng_group_size: Any = msgspec.field(name="_ng_group_size", default=UNSET)
    group_id: Any = UNSET
    group_attempt: Any = UNSET
    rollout_index: Any = UNSET
    task_index: Any = UNSET
    prompt_id: Any = UNSET


def campaign_name(text: str) -> str:
    """The name, if it is one; a rejudge campaign's suffix does not count towards the limit."""
    base = text.removesuffix(_REJUDGE) if text != _REJUDGE else text
    if _CAMPAIGN.fullmatch(base or text) is None:
        raise Refused("invalid_coordinates", "A campaign name has 1 to 64 characters out of A-Z a-z 0-9 . _ -")
    return text


def is_single(fields: CoordinateFields, configured_size: int | None) -> bool:
    """Whether groups have one member on purpose (R5): then nothing is compared and coordinates are not looked at."""
    if configured_size != 1:
        return False
    if fields.ng_group_size is not UNSET and fields.ng_group_size is not None:
        raise Refused("invalid_coordinates", "`_ng_group_size` cannot be sent while num_rollouts_per_prompt is 1.")
    return True


def resolve(
    fields: CoordinateFields,
    *,
    campaign: str,
    configured_size: int | None,
    fingerprint: bytes,
    max_size: int = 256,
) -> Coordinates:
    """The coordinates that the request names, or the refusal that says which field is wrong and how."""
    group_id = _text(_either(fields.ng_group_id, fields.group_id, "group_id"), "_ng_group_id")
    attempt = _index(_either(fields.ng_group_attempt, fields.group_attempt, "group_attempt"), "_ng_group_attempt")
    slot = _index(_either(fields.ng_rollout_index, fields.rollout_index, "rollout_index"), "_ng_rollout_index")
    task_index = _index(_either(fields.ng_task_index, fields.task_index, "task_index"), "_ng_task_index")
    prompt_id = _text(fields.prompt_id, "prompt_id")
    size = _size(fields.ng_group_size, max_size)
    if size is None and configured_size is None:
        raise Refused("invalid_request", GROUP_SIZE_UNKNOWN)
    if slot is None:
        raise Refused("invalid_coordinates", "`_ng_rollout_index` is required: the slot of this rollout in its group.")
    if group_id is not None:
        key = GroupKey(campaign, "explicit", group_id)
        return Coordinates(key, attempt or 0, slot, size, None, attempt is None)
    if attempt:
        raise Refused("invalid_coordinates", "`_ng_group_attempt` above 0 needs a `_ng_group_id`.")
    legacy = LegacyParts(task_index, None if task_index is not None else prompt_id)
    return Coordinates(GroupKey(campaign, "legacy", legacy_group_id(legacy, fingerprint)), 0, slot, size, legacy, False)


GROUP_SIZE_UNKNOWN: Final = (
    "The group size is unknown: set COHORTD_NUM_ROLLOUTS_PER_PROMPT for the service, "
    "or send `_ng_group_size` with the request."
)


def legacy_group_id(parts: LegacyParts, fingerprint: bytes) -> str:
    """Hex SHA-256 of the legacy key: its parts, each with its length and kind, and the fingerprint."""
    if parts.task_index is not None:
        named = b"task:" + str(parts.task_index).encode()
    elif parts.prompt_id is not None:
        named = b"prompt:" + parts.prompt_id.encode()
    else:
        named = b"none:"
    return hashlib.sha256(b"cohortd-legacy-1\x00%d:%s" % (len(named), named) + fingerprint).hexdigest()


def _either(canonical: Any, alias: Any, name: str) -> Any:
    if alias is UNSET:
        return canonical
    if canonical is not UNSET and (type(canonical) is not type(alias) or canonical != alias):
        raise Refused("invalid_coordinates", f"`_ng_{name}` and `{name}` are both sent and differ; send one of them.")
    return alias


def _index(value: Any, name: str) -> int | None:
    if value is UNSET:
        return None
    if type(value) is not int or not 0 <= value < INDEX_LIMIT:
        raise Refused("invalid_coordinates", f"`{name}` must be a JSON integer from 0 to {INDEX_LIMIT - 1}.")
    return value


def _size(value: Any, max_size: int) -> int | None:
    if value is UNSET or value is None:
        return None
    if type(value) is not int or value < 2:
        raise Refused("invalid_coordinates", "`_ng_group_size` must be a JSON integer of at least 2.")
    if value > max_size:
        raise Refused("invalid_coordinates", f"`_ng_group_size` is above max_rollouts_per_prompt, {max_size}.")
    return value


def _text(value: Any, name: str) -> str | None:
    if value is UNSET:
        return None
    if type(value) is not str or not 1 <= len(value) <= TEXT_LIMIT or not value.strip():
        raise Refused("invalid_coordinates", f"`{name}` must be a string of 1 to {TEXT_LIMIT} characters, not blank.")
    if _PLAIN.fullmatch(value) is None and any(unicodedata.category(char) in ("Cc", "Cs") for char in value):
        raise Refused("invalid_coordinates", f"`{name}` must not hold control characters or lone surrogates.")
    return value

"""Coordinates: strict types, aliases, legacy keys (R1-R5, R8)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cohortd.cohorts.digest import prompt_fingerprint
from cohortd.cohorts.identity import CoordinateFields, campaign_name, is_single, resolve
from cohortd.errors import Refused

PRINT = prompt_fingerprint("a prompt", None)


def resolved(configured_size: int | None = 8, **fields: Any) -> Any:
    """The coordinates of these fields."""
    values = {"ng_rollout_index": 0} | fields
    return resolve(CoordinateFields(**values), campaign="default", configured_size=configured_size, fingerprint=PRINT)


@pytest.mark.rule("R1")
def test_plain_names_are_aliases() -> None:
    plain = resolve(
        CoordinateFields(group_id="g", group_attempt=2, rollout_index=3),
        campaign="default",
        configured_size=8,
        fingerprint=PRINT,
    )
    assert plain == resolved(ng_group_id="g", ng_group_attempt=2, ng_rollout_index=3)
    assert resolved(ng_group_id="g", group_id="g").key.group_id == "g"


@pytest.mark.rule("R1")
@pytest.mark.parametrize(
    "fields",
    [
        {"ng_group_id": "g", "group_id": "h"},
        {"ng_group_id": "g", "group_attempt": 1, "ng_group_attempt": 0},
        {"rollout_index": 1},
        {"ng_task_index": 1, "task_index": True},
        {"ng_task_index": 1, "task_index": 1.0},
        {"ng_task_index": True, "task_index": 1},
    ],
)
def test_both_names_with_different_values_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        resolved(**fields)
    assert refused.value.code == "invalid_coordinates"


BAD_INDEXES = [True, False, "1", 1.5, 1.0, -1, None, 2**31, [], {}, -0.0]
BAD_TEXTS = ["", " ", "\t", "a\x00b", "a\nb", "\x7f", "\x85", "\ud800", "x" * 257, 7, None, True, [], {}]


@pytest.mark.rule("R2")
@pytest.mark.parametrize("value", BAD_INDEXES)
@pytest.mark.parametrize(
    "name", ["ng_group_attempt", "ng_rollout_index", "ng_task_index", "rollout_index", "task_index"]
)
def test_indexes_are_strict(name: str, value: Any) -> None:
    fields: dict[str, Any] = {"ng_group_id": "g", name: value}
    if name == "rollout_index":
        fields["ng_rollout_index"] = msgspec.UNSET
    with pytest.raises(Refused) as refused:
        resolved(**fields)
    assert refused.value.code == "invalid_coordinates"


@pytest.mark.rule("R2")
@pytest.mark.parametrize("value", BAD_TEXTS)
@pytest.mark.parametrize("name", ["ng_group_id", "group_id", "prompt_id"])
def test_ids_are_strict(name: str, value: Any) -> None:
    with pytest.raises(Refused) as refused:
        resolved(**{name: value})
    assert refused.value.code == "invalid_coordinates"


@pytest.mark.rule("R2")
@pytest.mark.parametrize("text", ["a", "x" * 256, "häfen/港口 🚢", " a ", "a b", "\u202ertl", "\u200b"])
def test_ids_may_be_any_other_text(text: str) -> None:
    assert resolved(ng_group_id=text).key.group_id == text


@pytest.mark.rule("R2")
def test_the_slot_is_required() -> None:
    with pytest.raises(Refused, match="_ng_rollout_index"):
        resolved(ng_group_id="g", ng_rollout_index=msgspec.UNSET)


@pytest.mark.rule("R3")
def test_a_group_id_without_attempt_means_attempt_0() -> None:
    found = resolved(ng_group_id="g")
    assert (found.attempt, found.attempt_defaulted) == (0, True)
    assert resolved(ng_group_id="g", ng_group_attempt=0).attempt_defaulted is False


@pytest.mark.rule("R4")
@pytest.mark.parametrize("value", [1, 0, -2, True, "8", 8.0, 257])
def test_a_group_size_is_an_integer_from_2_to_the_limit(value: Any) -> None:
    with pytest.raises(Refused) as refused:
        resolved(ng_group_id="g", ng_group_size=value)
    assert refused.value.code == "invalid_coordinates"


@pytest.mark.rule("R5")
def test_an_unknown_group_size_is_refused_with_both_remedies() -> None:
    with pytest.raises(Refused) as refused:
        resolved(None, ng_group_id="g")
    assert refused.value.code == "invalid_request"
    assert "COHORTD_NUM_ROLLOUTS_PER_PROMPT" in refused.value.detail
    assert "_ng_group_size" in refused.value.detail
    assert resolved(None, ng_group_id="g", ng_group_size=4).size == 4
    assert resolved(ng_group_id="g", ng_group_size=None).size is None


@pytest.mark.rule("R5")
def test_groups_of_one_look_at_no_coordinate_but_refuse_a_size() -> None:
    assert is_single(CoordinateFields(ng_rollout_index="x"), 1)
    assert is_single(CoordinateFields(ng_group_size=None), 1)
    assert not is_single(CoordinateFields(), 8)
    assert not is_single(CoordinateFields(), None)
    with pytest.raises(Refused):
        is_single(CoordinateFields(ng_group_size=2), 1)


@pytest.mark.rule("R8")
def test_legacy_keys_are_task_index_else_prompt_id_else_nothing_and_the_prompt() -> None:
    keys = [
        resolved(ng_task_index=7).key,
        resolved(prompt_id="7").key,
        resolved().key,
        resolved(ng_task_index=8).key,
        resolved(prompt_id="task:7").key,
    ]
    assert len(set(keys)) == len(keys)
    assert all(key.kind == "legacy" for key in keys)
    assert resolved(ng_task_index=7, prompt_id="anything").key == keys[0]
    other = prompt_fingerprint("another prompt", None)
    elsewhere = resolve(
        CoordinateFields(ng_rollout_index=0, ng_task_index=7), campaign="default", configured_size=8, fingerprint=other
    )
    assert elsewhere.key != keys[0]


@pytest.mark.rule("R8")
def test_no_explicit_id_collides_with_a_legacy_key() -> None:
    legacy = resolved(ng_task_index=7).key
    assert resolved(ng_group_id=legacy.group_id).key != legacy


@pytest.mark.rule("R8")
def test_an_attempt_without_a_group_id_is_refused() -> None:
    with pytest.raises(Refused):
        resolved(ng_group_attempt=1)
    assert resolved(ng_group_attempt=0).attempt == 0


@pytest.mark.parametrize("name", ["default", "math-v3", "A.b_c-9", "x" * 64, "x" * 64 + ".rejudge"])
def test_campaign_names(name: str) -> None:
    assert campaign_name(name) == name


@pytest.mark.parametrize("name", ["", "a/b", "a b", "ä", "x" * 65, "a\n", "../x y"])
def test_other_campaign_names_are_refused(name: str) -> None:
    with pytest.raises(Refused):
        campaign_name(name)

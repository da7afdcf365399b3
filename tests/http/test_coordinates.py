"""Coordinates over the wire: strict types, aliases, and nothing written on a refusal (R1-R5, R8)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.support.requests import expected_group, verify_body
from tests.support.service import problem, running

WRONG_INDEX: list[Any] = [True, False, "1", 1.5, 1.0, -1, None, [], {}, 2**31, 10**30, ""]
WRONG_NAME: list[Any] = ["", " ", "\t", "a\nb", "\x00", "\ud800", "x" * 257, 7, None, True, [], {}]


def with_field(name: str, value: Any) -> dict[str, Any]:
    """A request that is right but for this field."""
    return verify_body("g", 0) | {name: value}


CASES = [
    *(("_ng_rollout_index", value) for value in [*WRONG_INDEX, 8]),
    *(("_ng_group_attempt", value) for value in WRONG_INDEX),
    *(("_ng_group_id", value) for value in WRONG_NAME),
    *(("_ng_group_size", value) for value in WRONG_INDEX if value is not None),
    *(("_ng_group_size", value) for value in [0, 1, 257]),
    ("rollout_index", 1), ("group_attempt", 1), ("group_id", "other"), ("rollout_index", 0.0), ("group_id", 0),
]  # fmt: skip


@pytest.mark.rule("R1", "R2", "R4", "R61")
async def test_every_wrong_coordinate_is_a_422_and_nothing_is_written(database_url: str) -> None:
    async with running(database_url) as app:
        for name, value in CASES:
            reply = await app.client.post(
                "/verify", content=dumps(with_field(name, value)), headers={"content-type": "application/json"}
            )
            assert problem(reply) == (422, "invalid_coordinates"), (name, value, reply.text)
            assert "retry-after" not in reply.headers
        legacy = {key: value for key, value in verify_body(None, 0).items() if key != "_ng_rollout_index"}
        for body in (
            legacy,
            legacy | {"_ng_rollout_index": 0, "_ng_group_attempt": 1},
            legacy | {"_ng_rollout_index": 0, "_ng_task_index": "7"},
            legacy | {"_ng_rollout_index": 0, "prompt_id": " "},
        ):
            assert problem(await app.client.post("/verify", json=body)) == (422, "invalid_coordinates"), body
        for table in ("campaign", "cohort_group", "cohort"):
            assert (await app.rows(f"SELECT count(*) FROM {table}"))[0][0] == 0, table


def dumps(body: dict[str, Any]) -> bytes:
    """JSON with lone surrogates escaped."""
    return json.dumps(body).encode()


@pytest.mark.rule("R1", "R3", "R20")
async def test_plain_names_are_aliases_and_replies_use_ours(database_url: str) -> None:
    async with running(database_url, settings={"num_rollouts_per_prompt": 2}) as app:
        plain = verify_body(None, 0)
        body_0 = {k: v for k, v in plain.items() if k != "_ng_rollout_index"} | {
            "group_id": "g", "group_attempt": 0, "rollout_index": 0,
            "response": verify_body("g", 0)["response"], "responses_create_params": {"input": "x"},
        }  # fmt: skip
        both = verify_body("g", 1, prompt="x", group_id="g", group_attempt=0, rollout_index=1, _ng_group_size=None)
        replies = await asyncio.gather(*(app.client.post("/verify", json=body) for body in (body_0, both)))
        assert [reply.json()["reward"] for reply in replies] == expected_group("g", 2)
        for slot, reply in enumerate(replies):
            assert reply.json()["_ng_rollout_index"] == slot
            assert not {"group_id", "group_attempt", "rollout_index"} & reply.json().keys()
        defaulted = await app.verify("g", 0, attempt=None, prompt="x")
        assert (defaulted.json()["_ng_group_attempt"], defaulted.json()["reward"]) == (0, expected_group("g", 2)[0])


@pytest.mark.rule("R8")
async def test_a_legacy_key_never_meets_an_explicit_one(database_url: str) -> None:
    async with running(database_url, settings={"num_rollouts_per_prompt": 2}) as app:
        waiting = [app.later(None, 0, _ng_task_index=7), app.later(None, 0, prompt_id="7"), app.later(None, 0)]
        await app.stored(3)
        keys = [row[0] for row in await app.rows("SELECT group_id FROM cohort_group WHERE kind = 'legacy'")]
        assert len(set(keys)) == 3
        waiting += [
            app.later(key, 0, prompt=[{"role": "user", "content": "Describe the harbour of None."}]) for key in keys
        ]
        await app.stored(6)
        rows = await app.rows(
            "SELECT kind, count(*) FROM cohort WHERE status = 'collecting' GROUP BY kind ORDER BY kind"
        )
        assert [tuple(row) for row in rows] == [("explicit", 3), ("legacy", 3)]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

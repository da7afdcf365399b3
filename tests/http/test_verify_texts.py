"""Texts, limits and faults of `POST /verify`: what is sent reaches the judge and the row as it is (R16, R61, R71)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from cohortd.judges.http import TransportFault
from tests.support.requests import expected_group, verify_body
from tests.support.service import MemoryJudge, problem, running, verdict_text


@pytest.mark.rule("R43")
async def test_a_prompt_in_text_parts_reaches_the_judge_whole(database_url: str) -> None:
    parts = [{"type": "input_text", "text": "Describe "}, {"type": "text", "text": "the harbour."}]
    prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts}]
    async with running(database_url, settings={"num_rollouts_per_prompt": 2}) as app:
        await app.group("g", 2, prompt=prompt)
        for request in app.judge.requests:
            assert [(m["role"], m["content"]) for m in request["input"]] == [
                ("system", "Be brief."),
                ("user", "Describe the harbour."),
            ]


HOSTILE_TEXTS = ["nul \x00 inside", "lone \ud800 surrogate", "\udfff\x00", "😀" * 100, "</think>", "\u2028", "", "  "]


@pytest.mark.rule("R71", "R7")
@pytest.mark.parametrize("number", range(len(HOSTILE_TEXTS)))
async def test_texts_of_every_kind_reach_the_judge_exactly_and_are_readable_in_sql(
    number: int, database_url: str
) -> None:
    hostile = HOSTILE_TEXTS[number]
    async with running(database_url, settings={"num_rollouts_per_prompt": 2}) as app:
        bodies = [
            json.dumps(verify_body("g", slot, text=f"{hostile}{slot}" if hostile.strip() else hostile))
            for slot in range(2)
        ]
        headers = {"content-type": "application/json"}
        replies = await asyncio.gather(*(app.client.post("/verify", content=body, headers=headers) for body in bodies))
        for slot, reply in enumerate(replies):
            assert reply.status_code == 200, reply.text
            assert json.loads(reply.text)["response"] == json.loads(bodies[slot])["response"]
        shown = {request["metadata"]["response_1"] for request in app.judge.requests}
        assert shown == ({f"{hostile}{slot}" for slot in range(2)} if hostile.strip() else {"None"})
        rows = await app.rows("SELECT answer, text_escaped FROM member ORDER BY rollout_index")
        for answer, escaped in rows:
            assert "\x00" not in answer
            assert bool(escaped) == any(char == "\x00" or "\ud800" <= char <= "\udfff" for char in hostile)


HOSTILE_BODIES = [
    b"", b"{", b"[]", b"null", b'"text"', b"{}", b"\xff", b'{"response": {"output": [NaN]}}', b'{"response": 1e400}',
    b"[" * 50_000, b'{"response":' + b"[" * 50_000 + b"}", b'{"response": {}, "_ng_rollout_index": 0, "responses_create_params": []}',
    b'{"response": {}, "principle": 7, "_ng_rollout_index": 0}', b'{"response": {}, "principle": "\\u0000", "_ng_rollout_index": 0}',
    b'{"response": {"n": ' + b"1" * 4001 + b'}, "_ng_rollout_index": 0}', b'{"response": "\xc3\x28", "_ng_rollout_index": 0}',
]  # fmt: skip


@pytest.mark.rule("R25", "R16", "R2")
async def test_hostile_bodies_cost_a_422_and_nothing_else(database_url: str) -> None:
    async with running(database_url) as app:
        for body in HOSTILE_BODIES:
            reply = await app.client.post("/verify", content=body, headers={"content-type": "application/json"})
            assert reply.status_code == 422, (body[:60], reply.text)
            assert problem(reply)[1] in ("invalid_request", "invalid_response", "invalid_coordinates")
        assert (await app.rows("SELECT count(*) FROM cohort_group"))[0][0] == 0


@pytest.mark.rule("R25", "R61", "R62")
async def test_other_refusals_are_problem_documents_too(database_url: str) -> None:
    async with running(database_url, settings={"max_body_bytes": 2000}) as app:
        assert problem(await app.client.get("/nowhere")) == (404, "not_found")
        assert problem(await app.client.get("/verify")) == (405, "method_not_allowed")
        assert problem(await app.client.get("/compare")) == (405, "method_not_allowed")
        assert problem(await app.verify("g", 0, text="x" * 3000)) == (413, "body_too_large")
        assert problem(await app.client.post("/verify", content=b"{}")) == (415, "unsupported_media_type")
        foreign = {"host": "evil.example", "content-type": "application/json"}
        assert problem(await app.client.post("/verify", content=b"{}", headers=foreign)) == (403, "forbidden")
        page = {"origin": "http://evil.example", "content-type": "application/json"}
        assert problem(await app.client.post("/verify", content=b"{}", headers=page)) == (403, "forbidden")
        assert problem(await app.verify("g", 0, path="/campaigns/a%20b/verify")) == (422, "invalid_coordinates")


async def test_campaigns_are_namespaces(database_url: str) -> None:
    async with running(database_url, settings={"num_rollouts_per_prompt": 2}) as app:
        one = [app.later("g", slot, path="/campaigns/one/verify") for slot in range(2)]
        two = [app.later("g", slot, path="/campaigns/two/verify", prompt="other") for slot in range(2)]
        for reply in await asyncio.gather(*one, *two):
            assert reply.status_code == 200
        assert {row[0] for row in await app.rows("SELECT name FROM campaign")} == {"one", "two"}


@pytest.mark.rule("R61")
async def test_a_request_that_cannot_wait_is_stored_all_the_same(database_url: str) -> None:
    async with running(database_url, settings={"max_waiting_requests": 1, "num_rollouts_per_prompt": 2}) as app:
        waiting = app.later("g", 0)
        await app.stored(1)
        refused = await app.verify("h", 0)
        assert problem(refused) == (429, "overloaded")
        assert "Stored; send again" in refused.json()["detail"]
        assert refused.headers["retry-after"]
        await app.stored(2)
        assert problem(await app.verify("g", 1)) == (429, "overloaded")
        assert (await waiting).json()["reward"] == expected_group("g", 2)[0]
        assert (await app.verify("g", 1)).json()["reward"] == expected_group("g", 2)[1]


@pytest.mark.rule("R45", "R46")
async def test_transport_faults_are_retried_and_cost_no_reward(database_url: str) -> None:
    failed: set[str] = set()

    def script(first: str, second: str) -> Any:
        if first not in failed and first.startswith("Answer 3"):
            failed.add(first)
            return TransportFault("reset", "ServerDisconnectedError")
        return verdict_text(first, second)

    async with running(database_url, judge=MemoryJudge(script)) as app:
        replies = await app.group("g")
        assert [reply.json()["reward"] for reply in replies] == expected_group("g")
        rows = await app.rows("SELECT outcome, budget, try_no FROM judge_call WHERE first = 3 ORDER BY try_no")
        assert [tuple(row) for row in rows] == [("reset", "transport", 1), ("ok", "none", 2)]


@pytest.mark.rule("L1")
async def test_rows_that_somebody_removed_are_made_again(database_url: str) -> None:
    """A process remembers that a campaign is stored; foreign keys tell it when that is no longer so."""
    async with running(database_url) as service:
        await service.group("g", path="/campaigns/short/verify")
        for table in ("member_reward", "member_body", "judge_call", "comparison", "member_slot"):
            await service.write("UPDATE cohort SET results_dropped_at = settled_at")
            await service.write(f"DELETE FROM {table}")
        for table in ("cohort_event", "cohort", "cohort_group", "judging_profile", "campaign"):
            await service.write(f"DELETE FROM {table}")
        replies = await service.group("g", path="/campaigns/short/verify")
        assert [reply.json()["reward"] for reply in replies] == expected_group("g")
        assert await service.rows("SELECT name FROM campaign") == [("short",)]

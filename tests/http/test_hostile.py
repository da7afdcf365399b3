"""Clients that mean harm: no 500, no traceback, no reward but the judge's, no row for a refusal, no word of others'."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from cohortd.cohorts.digest import parse
from cohortd.http.body import first_fields
from tests.support.hostile import PAIR, busy, count, post
from tests.support.requests import answer_text, expected_group, expected_rewards, response, verify_body
from tests.support.service import MemoryJudge, problem, running


def nested(depth: int) -> str:
    """Lists in lists."""
    return "[" * depth + "]" * depth


# -- bodies


@pytest.mark.rule("R2", "R7", "R20", "R25")
@pytest.mark.parametrize("place", ["response", "extra", "instance_config", "prompt", "beside a surrogate"])
async def test_a_body_nested_to_the_very_limit_is_judged_or_refused_and_nothing_between(
    place: str, database_url: str
) -> None:
    async with running(database_url, settings=PAIR) as app:
        statuses = set()
        for depth in range(860, sys.getrecursionlimit()):
            bodies = [verify_body(f"{depth}", slot, text=f"{slot}") for slot in range(2)]
            for body in bodies:
                holder = {"response": body["response"], "prompt": body["responses_create_params"]}.get(place, body)
                holder["instance_config" if place == "instance_config" else "nested"] = "@"
                if place == "beside a surrogate":
                    body["extra"] = "\ud800"
            texts = [json.dumps(body).replace('"@"', nested(depth)).encode() for body in bodies]
            replies = await asyncio.gather(*(post(app, text) for text in texts))
            statuses |= {reply.status_code for reply in replies}
            if replies[0].status_code == 422:
                assert {problem(reply) for reply in replies} == {(422, "invalid_request")}
                assert await app.rows(f"SELECT 1 FROM cohort WHERE group_id = '{depth}'") == []
            else:
                assert [reply.json()["reward"] for reply in replies] == expected_rewards(["0", "1"])
        assert statuses == {200, 422}


PIECES = [
    b'"', b"{", b"}", b"[", b"]", b"\\", b"\\u", b"\\ud800", b"1e400", b"NaN", b"-Infinity", b",", b":", b"\x00", b"\xff", b"\xef\xbb\xbf",
    b"-0", b"null", b"true", b"1.0", b"9" * 4100, b"0" * 50, b"\xed\xa0\x80", b"\xc0\x80", "😀".encode(), b"/**/", b"'",
]  # fmt: skip


def mutated(body: bytes, rng: random.Random) -> bytes:
    """The body with a few bytes changed, cut out, put in, or its end cut off."""
    found = bytearray(body)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(found)) if found else 0
        match rng.randrange(4):
            case 0:
                found[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del found[at : at + rng.randint(1, 20)]
            case 2:
                found[at:at] = rng.choice(PIECES)
            case _ if rng.random() < 0.2:
                del found[at:]
    return bytes(found)


@pytest.mark.rule("R2", "R25", "R61")
async def test_of_a_thousand_mutilated_bodies_each_is_stored_or_refused(database_url: str) -> None:
    rng = random.Random(4)
    codes: set[tuple[int, str]] = set()
    async with busy(database_url) as app:
        for number in range(1000):
            before = await count(app)
            reply = await post(app, mutated(json.dumps(verify_body(f"g{number}", number % 2)).encode(), rng))
            codes.add(problem(reply))
            assert await count(app) - before <= (reply.status_code == 429), reply.text
        assert {code for _, code in codes} >= {
            "overloaded",
            "invalid_request",
            "invalid_response",
            "invalid_coordinates",
        }
        assert {status for status, _ in codes} <= {409, 422, 429}
        assert app.service.alive


BODIES: dict[str, bytes] = {
    "byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"response": {}}'.encode("utf-16"),
    "two objects": b'{"response": {}}{"response": {}}',
    "half an object": json.dumps(verify_body("g", 0)).encode()[:-20],
    "a long integer": json.dumps(verify_body("g", 0)).replace("1764550000.0", "9" * 4001).encode(),
    "a huge float": json.dumps(verify_body("g", 0)).replace("1764550000.0", "1e400").encode(),
    "not a number": json.dumps(verify_body("g", 0)).replace("1764550000.0", "NaN").encode(),
    "a huge exponent": json.dumps(verify_body("g", 0)).replace("1764550000.0", "1e99999999999").encode(),
    "deep": json.dumps(verify_body("g", 0) | {"a": "@"}).replace('"@"', nested(100_000)).encode(),
    "deep objects": json.dumps(verify_body("g", 0) | {"a": "@"}).replace('"@"', '{"a":' * 100_000).encode(),
    "an index of 2^31": json.dumps(verify_body("g", 2**31)).encode(),
    "an index of 10^300": json.dumps(verify_body("g", 10**300)).encode(),
    "an attempt of 2^31": json.dumps(verify_body("g", 0, attempt=2**31)).encode(),
    "a group of 257": json.dumps(verify_body("g", 0, _ng_group_size=257)).encode(),
    "a group of 1": json.dumps(verify_body("g", 0, _ng_group_size=1)).encode(),
    "the last of two ids": json.dumps(verify_body("g", 0)).encode()[:-1] + b', "_ng_group_id": 7}',
    "the last of two responses": json.dumps(verify_body("g", 0)).encode()[:-1] + b', "response": []}',
    "another spelling of a key": json.dumps(verify_body("g", 0)).encode()[:-1] + b', "\\u005fng_group_id": " "}',
    "a true beside a 1": json.dumps(verify_body("g", 1, rollout_index=True)).encode(),
    "a 1.0 beside a 1": json.dumps(verify_body("g", 1, rollout_index=1.0)).encode(),
    "null beside an id": json.dumps(verify_body("g", 0, group_id=None)).encode(),
    "a principle with NUL": json.dumps(verify_body("g", 0, principle="\x00")).encode(),
    "a principle with a surrogate": json.dumps(verify_body("g", 0, principle="\ud800")).encode(),
    "a prompt id with NUL": json.dumps(verify_body(None, 0, prompt_id="\x00")).encode(),
    "a prompt id of 257": json.dumps(verify_body(None, 0, prompt_id="x" * 257)).encode(),
    "parameters as a list": json.dumps(verify_body("g", 0) | {"responses_create_params": []}).encode(),
}


@pytest.mark.rule("R2", "R7", "R25")
async def test_what_is_refused_leaves_no_row_in_any_table(database_url: str) -> None:
    async with running(database_url, settings=PAIR) as app:
        for name, body in BODIES.items():
            assert (await post(app, body)).status_code == 422, name
        for table in ("campaign", "cohort_group", "cohort", "member", "member_body", "judging_profile", "cohort_event"):
            assert await count(app, table) == 0, table


@pytest.mark.rule("R20", "R21", "R61")
async def test_tens_of_thousands_of_fields_are_echoed_or_left_out_and_cost_no_other_reward(database_url: str) -> None:
    extras = {f"field {number}": number for number in range(30_000)}
    async with running(database_url, settings=PAIR) as app:
        for group, script in (("g", None), ("h", 400)):
            if script is not None:
                app.judge.script = lambda _first, _second: 400
            replies = [
                reply.json()
                for reply in await asyncio.gather(
                    *(post(app, verify_body(group, slot) | extras | {"reward": 99}) for slot in range(2))
                )
            ]
            if script is None:
                assert [reply["reward"] for reply in replies] == expected_group(group, 2)
                assert all(len(reply) < 10 for reply in replies)
            else:
                assert all(reply["reward"] == 0.0 and reply["mask_sample"] for reply in replies)
                assert all(extras.items() <= reply.items() for reply in replies)


LONG: dict[str, bytes] = {  # each of a megabyte
    "integers of 4,000 digits": b'{"a": [' + b",".join([b"9" * 4000] * 250) + b"]}",
    "integers of 3,999 digits and texts of more": b'{"a": [' + b",".join([b"9" * 3999, b'"' + b"9" * 4100 + b'"'] * 125) + b"]}",
    "space beside a surrogate": b'{"a": "\\ud800"' + b" " * 2**20 + b"}",
    "space around many fields": b'{"a": "\\ud800"' + b"".join(b' ,%s"%d" :%s1' % (b"\t" * 500, n, b"\n" * 500) for n in range(1000)) + b"}",
}  # fmt: skip


@pytest.mark.rule("R7", "R61")
@pytest.mark.parametrize("name", LONG)
def test_no_body_takes_more_than_a_small_multiple_of_what_any_parser_takes(name: str) -> None:
    body = LONG[name]

    def seconds(work: Callable[[], Any]) -> float:
        began = time.process_time()
        work()
        return time.process_time() - began

    def ours() -> None:
        parse(bytes(first_fields(body)["a"]))

    least = min(seconds(lambda: json.loads(body)) for _ in range(5))
    assert min(seconds(ours) for _ in range(3)) < 12 * least + 0.01


FORGED: dict[str, Any] = {
    "reward": 99, "mask_sample": False, "failure_kind": None, "failure_reason": "none", "_ng_failure_class": "ok", "cohort_id": "x",
    "_ng_failure_judge_error": "none", "_ng_defaulted_comparisons": -1, "base_reward": 99, "status": "completed", "score_1": 5,
    "instance_config": {"mask_sample": False, "reward": 99},
}  # fmt: skip


@pytest.mark.rule("R20", "R21")
async def test_a_request_that_brings_its_own_reply_gets_the_services(database_url: str) -> None:
    async with running(database_url, settings=PAIR) as app:
        replies = [reply.json() for reply in await app.group("g", 2, **FORGED)]
        assert [reply["reward"] for reply in replies] == expected_group("g", 2)
        for reply in replies:
            assert set(reply) == {
                "responses_create_params", "response", "reward", "_ng_group_id", "_ng_group_attempt", "_ng_rollout_index", "mask_sample",
            }  # fmt: skip
        app.judge.script = lambda _first, _second: 400
        for reply in await app.group("h", 2, **FORGED):
            body = reply.json()
            assert (body["reward"], body["mask_sample"], body["failure_kind"]) == (0.0, True, "judge_failed")
            assert body["_ng_failure_class"] == "judge_failed"
            assert body["_ng_failure_judge_error"] == body["failure_reason"] != "none"
            assert body["instance_config"] == {"mask_sample": True, "reward": 99}


# -- texts


SURROGATES: dict[str, dict[str, Any]] = {
    "prompt": {"prompt": "lone \ud800"},
    "NUL in the prompt": {"prompt": [{"role": "user", "content": "a\x00b"}]},
    "role": {"prompt": [{"role": "\ud800", "content": "x"}]},
    "content part": {"prompt": [{"role": "user", "content": [{"type": "input_text", "text": "\udfff"}]}]},
    "key of the prompt": {"prompt": [{"role": "user", "content": "x", "\ud800": 1}]},
    "answer": {"text": "\udfff lone"},
    "extra field": {"verifier_metadata": {"\ud800": "\udc00"}},
    "name of a field": {"\ud800": 1},
    "instance_config": {"instance_config": {"\ud800": "\ud800"}},
}


@pytest.mark.rule("R71", "R20", "R21")
@pytest.mark.parametrize("place", SURROGATES)
async def test_a_lone_surrogate_anywhere_is_judged_echoed_and_replayed(place: str, database_url: str) -> None:
    bodies = [verify_body("g", slot, **{"text": f"answer {slot}"} | SURROGATES[place]) for slot in range(2)]
    if place == "answer":
        bodies[1] = verify_body("g", 1, text="another")
    texts = [body["response"]["output"][0]["content"][0]["text"] for body in bodies]
    async with running(database_url, settings=PAIR) as app:
        for _ in range(2):
            replies = [json.loads(reply.text) for reply in await asyncio.gather(*(post(app, body) for body in bodies))]
            assert [reply["reward"] for reply in replies] == expected_rewards(texts)
            for body, reply in zip(bodies, replies, strict=True):
                assert reply["response"] == body["response"]
                assert reply["responses_create_params"] == body["responses_create_params"]
        prompt = bodies[0]["responses_create_params"]["input"]
        if isinstance(prompt, str):
            assert app.judge.requests[0]["input"] == [{"role": "user", "content": prompt, "type": "message"}]
        app.judge.script = lambda _first, _second: 400
        failed = await asyncio.gather(*(post(app, body | {"_ng_group_id": "h"}) for body in bodies))
        for body, reply in zip(bodies, failed, strict=True):
            own, wanted = json.loads(reply.text), body | {"_ng_group_id": "h"}
            wanted["instance_config"] = body.get("instance_config", {}) | {"mask_sample": True}
            assert {name: own[name] for name in wanted} == wanted


@pytest.mark.rule("R71", "R51")
@pytest.mark.parametrize(
    "said", ["\x00\ud800", '{"score_1": 4, "score_2": 2, "ranking": 2}\x00\udfff', "\ud800" * 3000]
)
async def test_a_judge_that_says_what_no_database_stores_harms_nobody(said: str, database_url: str) -> None:
    async with running(database_url, judge=MemoryJudge(lambda _first, _second: said), settings=PAIR) as app:
        replies = [reply.json() for reply in await app.group("g", 2)]
        if "score_1" in said:
            assert [(reply["reward"], reply["mask_sample"]) for reply in replies] == [(3.0, False)] * 2
        else:
            assert [(reply["reward"], reply["mask_sample"]) for reply in replies] == [(3.0, True)] * 2
        stored = [row[0] for row in await app.rows("SELECT text FROM comparison")]
        assert all("\\ud800" in text or "\\udfff" in text for text in stored)


# -- the other routes


JUNK: list[Any] = [
    None, True, 0, -1, 1.5, 10**300, "", "x", "\ud800\x00", [], {}, [[]], [None], {"": {}}, [{"type": "message"}],
    [{"type": "message", "content": [{"type": "output_text", "text": 5}]}], {"output": None}, {"output": [None, 1, "x", {}]},
]  # fmt: skip


@pytest.mark.rule("R16", "R25", "R43")
async def test_compare_takes_anything_or_refuses_it(database_url: str) -> None:
    good = [response(answer_text("g", slot)) for slot in range(2)]
    async with running(database_url) as app:
        statuses = []
        for junk in JUNK:
            for body in (
                junk,
                {"response_objs": junk},
                {"response_objs": [junk, junk]},
                {"response_objs": good, "conversation_history": junk},
                {"response_objs": good, "conversation_history": [junk, {"role": junk, "content": junk}]},
                {"response_objs": good, "principle": junk},
                {"response_objs": good, "conversation_history": [], "reward": junk, "rewards": junk},
            ):
                reply = await post(app, body, "/compare")
                statuses.append(reply.status_code)
                if reply.status_code == 200:
                    rewards = reply.json()["rewards"]
                    wanted = (
                        expected_group("g", 2) if isinstance(body, dict) and body["response_objs"] is good else None
                    )
                    assert rewards == (wanted or rewards)
                else:
                    assert problem(reply)[0] == 422, body
        assert {200, 422} == set(statuses)
        assert await count(app, "cohort_group") == 0


@pytest.mark.rule("R25")
async def test_aggregate_metrics_takes_any_row(database_url: str) -> None:
    keys = ["reward", "_ng_task_index", "_ng_failure_class", "mask_sample", "", "\ud800", "\x00", "mean/reward"]
    values = [*JUNK, -(10**300), 5e-324, 9e299, -9e299, 2**63, 2**64]
    rows = [{key: value} for key in keys for value in values] + [dict.fromkeys(keys, value) for value in values]
    async with running(database_url) as app:
        for several in ([row] for row in rows), [rows], [rows * 20]:
            for some in several:
                reply = await post(app, {"verify_responses": some}, "/aggregate_metrics")
                assert reply.status_code == 200, some[:1]
                assert set(json.loads(reply.text)) == {"group_level_metrics", "agent_metrics", "key_metrics"}
        for junk in JUNK:
            if junk != [] and not (isinstance(junk, list) and all(isinstance(row, dict) for row in junk)):
                reply = await post(app, {"verify_responses": junk}, "/aggregate_metrics")
                assert problem(reply) == (422, "invalid_request"), junk


async def test_metrics_that_take_long_hold_up_nobody(database_url: str) -> None:
    async with running(database_url, settings=PAIR) as app:
        row = {f"field {number}": number for number in range(150_000)}
        computing = asyncio.create_task(post(app, {"verify_responses": [row]}, "/aggregate_metrics"))
        replies = await app.group("g", 2)
        assert [reply.json()["reward"] for reply in replies] == expected_group("g", 2)
        assert not computing.done()
        assert len((await computing).json()["key_metrics"]) == 150_000

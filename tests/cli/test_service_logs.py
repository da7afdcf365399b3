"""What a service writes to its outputs while everything goes wrong: lines of one form, and nobody's words (L2, R62)."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import httpx
import pytest

from tests.cli.support import Start
from tests.support.judge_server import Call, Fate, JudgeServer, cut, html, no_http, raw, reply_object, says
from tests.support.processes import Service
from tests.support.requests import response

KEY, PASSWORD, PROMPT, PRINCIPLE = "CANARY-key-1", "CANARY-password-2", "CANARY-prompt-3", "CANARY-principle-4"
ANSWERS = ("CANARY-answer-5", "CANARY-answer-6")


def echo(number: int) -> Fate:
    """An error that quotes all it was sent, wherever an error has room for it."""

    async def fate(call: Call) -> None:
        sent = call.body.decode() + json.dumps(call.headers)
        error = {"message": sent, "type": ANSWERS[0], "code": KEY, "param": sent}
        await raw(json.dumps({"error": error}).encode(), number=number)(call)

    return fate


async def refuses_by_echo(call: Call) -> None:
    """A 200 whose status is `failed`, quoting all it was sent."""
    sent = call.body.decode() + json.dumps(call.headers)
    reply = reply_object(call, None, status="failed", error={"message": sent, "code": PASSWORD, "type": PROMPT})
    await raw(json.dumps(reply).encode())(call)


FAULTS: list[Fate] = [
    echo(400), echo(401), echo(404), echo(422), echo(429), echo(500), refuses_by_echo, says(f"{PROMPT} {ANSWERS[0]}"), html(), cut,
    no_http, raw(ANSWERS[0].encode()), raw(b"[" * 100_000),
]  # fmt: skip

HOSTILE = [
    b"CANARY / HTTP/1.1\r\n\r\n",
    b"GET /CANARY\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /CANARY%00%ff HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /verify HTTP/1.1\r\nHost: CANARY\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"POST /verify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{CANARY",
]


def body(number: int, slot: int) -> dict[str, Any]:
    """A rollout of the group with this number; the answer of each slot is its own canary."""
    return {
        "responses_create_params": {"input": PROMPT},
        "principle": PRINCIPLE,
        "response": response(ANSWERS[slot]),
        "_ng_group_id": f"g{number}",
        "_ng_rollout_index": slot,
    }


async def _provoke(service: Service, number: int, client: httpx.AsyncClient) -> None:
    """One group whose judging goes wrong, its conflicts, and what the replies say to each rollout."""
    replies = await asyncio.gather(
        *(client.post(f"{service.url}/verify", json=body(number, slot)) for slot in range(2))
    )
    conflict = await client.post(f"{service.url}/verify", json=body(number, 0) | {"principle": "another"})
    compared = await client.post(
        f"{service.url}/compare",
        json={
            "conversation_history": [{"role": "user", "content": PROMPT}],
            "response_objs": [response(answer) for answer in ANSWERS],
            "principle": PRINCIPLE,
        },
    )
    assert conflict.status_code == 409
    assert compared.status_code in (200, 503)
    for slot, reply in enumerate(replies):
        assert reply.status_code == 200
        own = reply.json()
        assert (own.pop("response"), own.pop("responses_create_params")) == (
            body(number, slot)["response"],
            body(number, slot)["responses_create_params"],
        )
        own.pop("principle", None)
        assert "CANARY" not in json.dumps(own)
    assert "CANARY" not in conflict.text + compared.text


@pytest.mark.rule("L2", "R21", "R25")
@pytest.mark.parametrize("log_format", ["json", "console"])
async def test_no_word_of_clients_judges_or_keys_is_logged_or_told_to_others(log_format: str, start: Start) -> None:
    async with JudgeServer(*FAULTS) as judge, httpx.AsyncClient(timeout=30) as client:
        service = await asyncio.to_thread(
            start, judge_url=judge.url.replace("//", f"//somebody:{PASSWORD}@"), judge_api_key=KEY, log_format=log_format,
            log_level="debug", num_rollouts_per_prompt=2, use_principle="true", judge_transport_retries=1,
            judge_answer_retries=1, genrm_parse_retry_sleep_s=0, on_unparseable="fail", judge_eject_after=1000,
        )  # fmt: skip
        for number, fate in enumerate(FAULTS):
            judge.fates = [fate]
            judge.calls.clear()
            await _provoke(service, number, client)
        for request in HOSTILE:
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            writer.write(request)
            writer.write_eof()
            said = await asyncio.wait_for(reader.read(500), 10)
            assert b"CANARY" not in said
            writer.transport.abort()
        health = "".join(
            [(await client.get(f"{service.url}{path}")).text for path in ("/health/ready", "/health/judge", "/schema")]
        )
        service.kill()
    written = service.err.read_text() + service.out.read_text()
    assert "CANARY" not in written + health
    assert "judge_failed" in written
    lines = [line for line in written.splitlines() if line]
    if log_format == "json":
        assert all({"event", "level", "timestamp"} <= json.loads(line).keys() for line in lines)
    else:
        assert all(re.match(r"\d{4}-\d\d-\d\dT\S+ \[", line) for line in lines), lines

"""Names that mean harm: group ids, legacy keys, campaigns, paths, hosts and origins (R2, R8, R62)."""

from __future__ import annotations

import asyncio
import unicodedata
from typing import Any

import pytest

from tests.support.hostile import PAIR, busy, count, post
from tests.support.requests import expected_rewards, verify_body
from tests.support.service import problem, running


def of_every_category() -> dict[str, list[str]]:
    """Some characters of each category of Unicode."""
    found: dict[str, list[str]] = {}
    for number in range(0x110000):
        several = found.setdefault(unicodedata.category(chr(number)), [])
        if len(several) < 3:
            several.append(chr(number))
    return found


@pytest.mark.rule("R1", "R2", "R20")
async def test_group_ids_of_every_category_of_unicode_are_kept_or_refused(database_url: str) -> None:
    categories = of_every_category()
    assert len(categories) == 30
    async with busy(database_url) as app:
        kept = []
        for category, characters in categories.items():
            for character in characters:
                for name in (f"a{character}b", character * 256):
                    reply = await post(app, verify_body(name, 0))
                    blank = not name.strip()
                    if category in ("Cc", "Cs") or blank:
                        assert problem(reply) == (422, "invalid_coordinates"), (category, name)
                    else:
                        assert problem(reply) == (429, "overloaded"), (category, name)
                        kept.append(name)
        assert problem(await post(app, verify_body("\U0010ffff" * 257, 0))) == (422, "invalid_coordinates")
        # what looks alike is not one: composed and decomposed, cases, and a space behind
        alike = ["\u00e9", "e\u0301", "K", "k", "\u212a", "x", "x "]
        for name in alike:
            assert (await post(app, verify_body(name, 0))).status_code == 429
        rows = {row[0] for row in await app.rows("SELECT group_id FROM cohort_group")}
        assert rows == {"the one that waits", *kept, *alike}
        assert await count(app) == 1 + len(kept) + len(alike)


@pytest.mark.rule("R8")
async def test_legacy_keys_of_hostile_text_never_meet_one_another(database_url: str) -> None:
    prompt_ids = ["7", "task:7", "none:", "prompt:7", "7\u2028", "7 ", " 7", "\u200b", "cohortd-legacy-1", "😀" * 256]
    async with busy(database_url) as app:
        bodies = [verify_body(None, 0), verify_body(None, 0, _ng_task_index=7), verify_body(None, 0, task_index=8)]
        bodies += [verify_body(None, 0, prompt_id=name) for name in prompt_ids]
        for body in bodies:
            assert problem(await post(app, body)) == (429, "overloaded")
        assert problem(await post(app, verify_body(None, 0, task_index=7, prompt_id="7"))) == (429, "overloaded")
        rows = await app.rows("SELECT group_id, prompt_id FROM cohort_group WHERE kind = 'legacy'")
        assert len({row[0] for row in rows}) == len(bodies)
        assert {row[1] for row in rows} == {*prompt_ids, None}


# -- campaigns


@pytest.mark.rule("R20", "R25", "R62")
async def test_odd_names_of_campaigns_and_odd_paths_are_refused_or_mean_what_they_say(database_url: str) -> None:
    longest = "x" * 64
    async with busy(database_url) as app:
        for name in ("a", longest, f"{longest}.rejudge", "%2e", "%2E%2e", "A", "-_.", ".rejudge", "%41b"):
            assert problem(await post(app, verify_body(name, 0), f"/campaigns/{name}/verify")) == (429, "overloaded"), (
                name
            )
        for name in (
            f"{longest}x", f"{longest}x.rejudge", "", "%20", "a%20b", "a%0Ab", "a%0A", "%00", "é", "%C3%A9", "%FF", "a%3Fb", "a%23b",
            "a:b", "a@b", "%25", "a%252Fb", "'", '"', "a;b", "*", "%E2%80%8B",
        ):  # fmt: skip
            reply = await post(app, verify_body("g", 0), f"/campaigns/{name}/verify")
            assert problem(reply) == (422, "invalid_coordinates"), name
        for path in (
            "/campaigns/a%2Fb/verify", "/campaigns/a/b/verify", "/campaigns/a", "/campaigns/", "/campaigns/a/Verify", "/Verify",
            "/campaigns/a/campaigns/b/verify", "/verify%00", "/verify/x", "/%2e%2e/verify", "/campaigns/a/health/ready", "/x" * 5000,
        ):  # fmt: skip
            assert problem(await post(app, verify_body("g", 0), path)) == (404, "not_found"), path
        names = {row[0] for row in await app.rows("SELECT name FROM campaign")}
        assert names == {"default", "a", longest, f"{longest}.rejudge", ".", "..", "A", "-_.", ".rejudge", "Ab"}


@pytest.mark.rule("R11", "R20", "R62")
async def test_campaigns_with_the_same_keys_never_see_one_another(database_url: str) -> None:
    async with running(database_url, settings=PAIR) as app:
        texts = {name: [f"{name} answers {slot}" for slot in range(2)] for name in ("one", "two")}
        for name, answers in texts.items():
            replies = await asyncio.gather(
                *(
                    app.verify("g", slot, text=answers[slot], prompt=name, path=f"/campaigns/{name}/verify")
                    for slot in range(2)
                )
            )
            assert [reply.json()["reward"] for reply in replies] == expected_rewards(answers)
        for name, other in (("one", "two"), ("two", "one")):
            path = f"/campaigns/{name}/verify"
            conflict = await app.verify("g", 0, text=texts[other][0], prompt=name, path=path)
            assert problem(conflict) == (409, "response_conflict")
            mismatch = await app.verify("g", 0, text=texts[other][0], prompt=other, path=path)
            assert problem(mismatch) == (409, "prompt_mismatch")
            for reply in (conflict, mismatch):
                assert "answers" not in reply.text
        assert await count(app) == 4


@pytest.mark.rule("R14", "R15")
async def test_the_keys_of_one_attempt_say_nothing_in_another(database_url: str) -> None:
    last = 2**31 - 1
    async with running(database_url, settings=PAIR) as app:
        seen = {}
        for attempt in (0, 5, last):
            answers = [f"{attempt} answers {slot}" for slot in range(2)]
            replies = await asyncio.gather(
                *(app.verify("g", slot, text=answers[slot], attempt=attempt) for slot in range(2))
            )
            seen[attempt] = [reply.json()["reward"] for reply in replies]
            assert seen[attempt] == expected_rewards(answers)
        stale = await app.verify("g", 0, text="0 answers 0", attempt=0)
        assert problem(stale) == (409, "stale_attempt")
        assert "answers" not in stale.text
        assert problem(await app.verify("g", 0, attempt=last + 1)) == (422, "invalid_coordinates")
        rows = await app.rows("SELECT attempt, reward FROM member ORDER BY attempt, rollout_index")
        assert [tuple(row) for row in rows] == [(attempt, reward) for attempt, both in seen.items() for reward in both]


# -- hosts, origins, media types


@pytest.mark.rule("R62")
@pytest.mark.parametrize(
    "host",
    [
        "", "evil.example", "localhost.", "localhost.evil.example", "evil.example#localhost", "localhost@evil.example",
        "evil.example:localhost", "[::1]evil.example", "[::1].evil.example:80", "[evil.example]", "[::1", "0", "0.0.0.0", "2130706433",
        "127.1", "0x7f000001", "127.0.0.1.evil.example", "127.0.0.1, evil.example", "::ffff:127.0.0.1x", "loc\u0430lhost", "*",
    ],
)  # fmt: skip
async def test_a_host_that_is_not_this_machine_is_not_served(host: str, tmp_path: Any, sqlite_template: Any) -> None:
    (tmp_path / "c.db").write_bytes(sqlite_template.read_bytes())
    async with running(f"sqlite+aiosqlite:///{tmp_path}/c.db", settings=PAIR) as app:
        headers: list[tuple[str, Any]] = [("content-type", "application/json"), ("host", host.encode("utf-8"))]
        for path in ("/verify", "/seed_session", "/campaigns/a/compare"):
            refused = problem(await app.client.post(path, content=b"{}", headers=headers))
            assert refused == (403, "forbidden") or (path, refused) == ("/seed_session", (422, "invalid_request"))
        twice = [("content-type", "application/json"), ("host", "localhost"), ("host", "evil.example")]
        assert problem(await app.client.post("/seed_session", content=b"{}", headers=twice)) == (403, "forbidden")


@pytest.mark.rule("R62")
@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"content-type": "text/plain; application/json"}, "unsupported_media_type"),
        ({"content-type": "text/plain, application/json"}, "unsupported_media_type"),
        ({"content-type": "application/json, text/plain"}, "unsupported_media_type"),
        ({"content-type": "application/jsonx"}, "unsupported_media_type"),
        ({"content-type": "multipart/form-data; boundary=application/json"}, "unsupported_media_type"),
        ({"origin": "http://localhost.evil.example"}, "forbidden"),
        ({"origin": "http://127.0.0.1:1"}, "forbidden"),
        ({"origin": "http://127.0.0.1@evil.example"}, "forbidden"),
        ({"origin": "http://evil.example/127.0.0.1"}, "forbidden"),
        ({"origin": "127.0.0.1"}, "forbidden"),
        ({"origin": ""}, "forbidden"),
        ({"origin": "file://"}, "forbidden"),
    ],
)  # fmt: skip
async def test_a_page_of_another_site_cannot_write(
    headers: dict[str, str], code: str, tmp_path: Any, sqlite_template: Any
) -> None:
    (tmp_path / "c.db").write_bytes(sqlite_template.read_bytes())
    async with running(f"sqlite+aiosqlite:///{tmp_path}/c.db", settings=PAIR) as app:
        for path in ("/verify", "/compare", "/seed_session", "/aggregate_metrics", "/campaigns/a/verify"):
            assert problem(await post(app, verify_body("g", 0), path, **headers))[1] == code
        assert await count(app) == 0

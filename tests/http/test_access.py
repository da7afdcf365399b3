"""Hosts, origins, media types, and the routes that are free (R62)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.service import problem, running

JSON = {"content-type": "application/json"}


@pytest.mark.rule("R62")
@pytest.mark.parametrize(
    ("allowed", "headers", "status"),
    [
        ("", {"host": "localhost:8400"}, 200),
        ("", {"host": "127.0.0.1"}, 200),
        ("", {"host": "[::1]:8400"}, 200),
        ("", {"host": "127.8.9.1:1"}, 200),
        ("", {"host": "LOCALHOST"}, 200),
        ("", {"host": "0.0.0.0:8400"}, 403),
        ("", {"host": "localhost.evil.example"}, 403),
        ("", {"host": "evil.example"}, 403),
        ("gym.internal", {"host": "gym.internal:8400"}, 200),
        ("gym.internal", {"host": "other.internal:8400"}, 403),
        ("gym.internal", {"host": "localhost"}, 200),
        ("*", {"host": "anything.example"}, 200),
        ("", {"host": "localhost:8400", "origin": "http://localhost:8400"}, 200),
        ("", {"host": "localhost:8400", "origin": "http://localhost:9999"}, 403),
        ("", {"host": "localhost:8400", "origin": "null"}, 403),
        ("", {"host": "localhost:8400", "origin": "http://["}, 403),
        ("*", {"host": "gym.internal", "origin": "https://evil.example"}, 403),
        ("*", {"host": "gym.internal", "origin": "https://gym.internal"}, 200),
        ("", {"content-type": "application/json; charset=utf-8"}, 200),
        ("", {"content-type": "Application/JSON"}, 200),
        ("", {"content-type": "text/plain"}, 415),
        ("", {"content-type": ""}, 415),
        ("", {"content-type": "application/x-www-form-urlencoded"}, 415),
    ],
)
async def test_a_request_is_served_to_whom_it_may_be(
    allowed: str, headers: dict[str, str], status: int, tmp_path: Any, sqlite_template: Any
) -> None:
    path = tmp_path / "cohortd.db"
    path.write_bytes(sqlite_template.read_bytes())
    async with running(f"sqlite+aiosqlite:///{path}", settings={"allowed_hosts": allowed or None}) as app:
        replies = [
            await app.client.post("/seed_session", content=b"{}", headers=JSON | headers),
            await app.client.post("/verify", content=b'{"response": {"output": 0}}', headers=JSON | headers),
        ]
        assert replies[0].status_code == status
        assert replies[1].status_code == (422 if status == 200 else status)
        if status != 200:
            assert {problem(reply)[1] for reply in replies} == {
                {403: "forbidden", 415: "unsupported_media_type"}[status]
            }


@pytest.mark.rule("R62", "R25")
async def test_health_and_schema_are_free_and_say_no_url(database_url: str) -> None:
    async with running(database_url) as app:
        foreign = {"host": "probe.example"}
        assert (await app.client.get("/health/live", headers=foreign)).json() == {"status": "live"}
        ready = await app.client.get("/health/ready", headers=foreign)
        assert ready.status_code == 200
        assert ready.json()["database"] == "answers"
        assert "judge.test" not in ready.text
        assert (await app.client.get("/health/judge", headers=foreign)).status_code == 200
        schema = await app.client.get("/schema", headers=foreign)
        assert schema.headers["content-type"].startswith("application/json")
        assert schema.json()["openapi"].startswith("3.1")
        assert "/health/ready" in schema.json()["paths"]
        assert problem(await app.client.get("/schema/nothing")) == (404, "not_found")
        assert problem(await app.client.delete("/health/live")) == (405, "method_not_allowed")


@pytest.mark.rule("R26")
async def test_a_service_that_stops_is_alive_and_not_ready(database_url: str) -> None:
    async with running(database_url) as app:
        app.service.release_waiters()
        ready = await app.client.get("/health/ready")
        assert ready.status_code == 503
        assert ready.json()["stopping"] is True
        assert (await app.client.get("/health/live")).status_code == 200


async def test_readiness_ends_when_the_schema_is_another_one(database_url: str) -> None:
    async with running(database_url) as app:
        await app.write("UPDATE alembic_version SET version_num = '2099_01_01_later'")
        ready = await app.client.get("/health/ready")
        assert (ready.status_code, ready.json()["database"]) == (503, "another schema")
        await app.write("DROP TABLE alembic_version")
        ready = await app.client.get("/health/ready")
        assert (ready.status_code, ready.json()["database"]) == (503, "away")

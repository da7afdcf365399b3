"""What README.md and the guides tell people to type works as it stands there."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cohortd.settings import load
from tests.support.postgres import free_port
from tests.support.processes import MockJudge, Service

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# Run by tests of their own, since each takes as long as it takes; here they must exist.
LONG = {"ops/demo", "ops/test", "ops/bench"}
# Started as background processes, as the README does with `&`.
SERVERS = {"mock-judge", "serve"}


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in this language; `bash` is what we answer for, `sh` is typed elsewhere."""
    return [textwrap.dedent(body) for found, body in FENCE.findall(page.read_text()) if found == language]


def commands(page: Path) -> list[str]:
    """Every command of a page, continued lines joined."""
    joined = "\n".join(blocks(page, "bash")).replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def cohortd_words(command: str) -> list[str] | None:
    """The words after `cohortd` of a command that calls it."""
    words = [word for word in command.removesuffix("&").split() if not re.match(r"^[A-Z_]+=", word)]
    return words[1:] if words and words[0] == "cohortd" else None


@pytest.fixture
def ran(tmp_path: Path) -> Iterator[tuple[Path, Service]]:
    """The service as the README starts it by hand, with its rollouts sent."""
    judge = MockJudge(tmp_path)
    database = f"sqlite+aiosqlite:///{tmp_path / 'campaign.db'}"
    service = Service(tmp_path, database, judge.url, num_rollouts_per_prompt=2)
    yield tmp_path / "campaign.db", service
    service.kill()
    judge.kill()


def test_the_example_by_hand_gets_rewards_and_every_query_finds_them(ran: tuple[Path, Service]) -> None:
    database, service = ran
    (example,) = blocks(README, "python")
    printed = [
        subprocess.run(
            [sys.executable, "-c", example.replace("http://127.0.0.1:8400", service.url)],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for _ in range(2)
    ]
    assert re.fullmatch(r"\[[0-9.]+, [0-9.]+\]\n", printed[0])
    assert printed[0] == printed[1]
    (queries,) = blocks(README, "sql")
    with sqlite3.connect(database) as connection:
        found = {
            query.strip().splitlines()[0]: connection.execute(query).fetchall()
            for query in queries.split(";")
            if query.strip()
        }
        for page in PAGES:
            for query in [query for block in blocks(page, "sql") for query in block.split(";") if query.strip()]:
                connection.execute(query).fetchall()
    rewards = [row[2] for row in found["-- the rewards of a group"]]
    assert str(rewards) == printed[0].strip()
    assert len(found["-- the verdicts behind them"]) == 2
    assert found["-- what is not settled yet, and what failed and why"] == []
    assert len(found["-- how the judge judges"]) == 1
    assert len(found["-- what happened to a group, in order"]) >= 6


def test_the_masked_row_of_the_trainers_guide_is_as_it_says(tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}/v1"
    service = Service(
        tmp_path, f"sqlite+aiosqlite:///{tmp_path / 'c.db'}", nobody, num_rollouts_per_prompt=2,
        cohort_evaluation_timeout_s=2,
    )  # fmt: skip
    (example,) = blocks(ROOT / "docs" / "guides" / "nemo-rl.md", "python")
    done = subprocess.run(
        [sys.executable, "-c", example.replace("http://127.0.0.1:8400", service.url)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    service.kill()
    assert done.returncode == 0, done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["judge_failed", "0.0"]] * 2


def test_the_lines_that_prepare_a_resume_of_gyms_collector_name_the_groups_that_are_not_whole(tmp_path: Path) -> None:
    inputs: list[dict[str, Any]] = [
        {"_ng_task_index": task, "_ng_rollout_index": slot} for task in range(3) for slot in range(2)
    ]
    inputs[4] |= {"_ng_group_id": "failed", "_ng_group_attempt": 3}
    written = [json.dumps(row | {"reward": 1.50}) + " \n" for row in inputs[:3]]
    main, materialized = tmp_path / "rollouts.jsonl", tmp_path / "rollouts_materialized_inputs.jsonl"
    main.write_text("".join(written))
    materialized.write_text("".join(json.dumps(row) + "\n" for row in inputs))
    (lines,) = blocks(ROOT / "docs" / "guides" / "nemo-gym.md", "python")
    subprocess.run([sys.executable, "-c", lines], cwd=tmp_path, timeout=60, check=True)
    assert main.read_text() == "".join(written[:2])
    found = [json.loads(line) for line in materialized.read_text().splitlines()]
    assert found[:2] == inputs[:2]
    assert [{name: row[name] for name in inputs[0]} for row in found] == [
        {name: row[name] for name in inputs[0]} for row in inputs
    ]
    named = [(row["_ng_group_id"], row["_ng_group_attempt"]) for row in found[2:]]
    assert named[0] == named[1] != named[2] == named[3]
    assert "failed" not in {group for group, _ in named}


def test_every_command_of_every_page_runs(tmp_path: Path) -> None:
    base = {key: value for key, value in os.environ.items() if not key.startswith("COHORTD_")}
    judge, port = MockJudge(tmp_path), free_port()
    started = Service(tmp_path, f"sqlite+aiosqlite:///{tmp_path / 'cohortd.db'}", judge.url)
    started.stop()
    judge.kill()
    seen = set()
    for command in [command for page in PAGES for command in commands(page)]:
        words = cohortd_words(command)
        if words is None:
            program = command.split()[0]
            assert program in {"source", *LONG}, f"nothing checks {command!r}"
            assert program == "source" or os.access(ROOT / program, os.X_OK)
            seen.add(program)
            continue
        seen.add(words[0])
        if words[0] in SERVERS and "--help" not in words:
            words = [*words, "--help"]  # its options are checked; the example above runs it
        environment = base | {"COHORTD_PORT": str(port)} | _settings_of(command)
        done = subprocess.run(
            [sys.executable, "-m", "cohortd", *words],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    assert {"ops/demo", "ops/test", "mock-judge", "serve", "db", "config"} <= seen


def _settings_of(command: str) -> dict[str, str]:
    return {
        name: value
        for name, _, value in (word.partition("=") for word in command.split())
        if name.startswith("COHORTD_")
    }


def test_the_settings_of_every_page_are_settings(tmp_path: Path) -> None:
    for page in PAGES:
        for number, block in enumerate(blocks(page, "toml")):
            file = tmp_path / f"{page.stem}-{number}.toml"
            file.write_text(block)
            assert load({}, {}, file).profiles
        for command in commands(page):
            if named := _settings_of(command):
                assert load({}, named).service
        for name in re.findall(r"\bCOHORTD_[A-Z0-9_]+", page.read_text()):
            assert name in os.environ or _known(name), f"{page.name} names {name}, which is no setting"


def _known(name: str) -> bool:
    """Whether the setting exists: an unknown one is refused by its name."""
    try:
        load({}, {name: "1"})
    except Exception as error:  # noqa: BLE001
        return "is not a setting" not in str(error)
    return True


def test_every_link_of_every_page_leads_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if not target.startswith(("https://", "#")):
                assert (page.parent / target.partition("#")[0]).exists(), f"{page.name}: {target}"


def test_the_readme_names_only_refusals_that_exist(ran: tuple[Path, Service]) -> None:
    from cohortd.errors import CODES  # noqa: PLC0415

    named = set(re.findall(r"(?:409|422|429|503) `([a-z_]+)`", README.read_text()))
    assert named
    assert named <= set(CODES)
    assert httpx.get(f"{ran[1].url}/health/live", timeout=5).status_code == 200
    assert httpx.get(f"{ran[1].url}/schema", timeout=5).json()["openapi"].startswith("3.1")

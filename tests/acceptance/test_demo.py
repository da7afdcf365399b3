"""`cohortd demo` shows what it claims, leaves running what it says, and fails when its claims do not hold."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from cohortd.demo.processes import DemoFailed
from cohortd.demo.prompts import PROMPTS
from cohortd.demo.story import JUDGE_SLOTS, PAIRS, SIBLINGS, Restart, check
from tests.support.processes import wait_until


def demo(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The command, in a folder of its own."""
    return subprocess.run(
        [sys.executable, "-m", "cohortd", "demo", *options],
        env=os.environ | {"TMPDIR": str(tmp_path), "COLUMNS": "120"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.rule("R10", "R12", "R41", "L6")
def test_the_demo_survives_its_own_kill_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = demo(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for promised in ("SIGKILL at", "Rewards by slot", "Verdicts of bread-0001", "48 identical rewards, 0 judge calls"):
        assert promised in done.stdout
    assert done.stdout.count("SELECT") >= 4
    assert list(tmp_path.iterdir()) == []


def test_the_demo_with_keep_leaves_the_service_running(tmp_path: Path) -> None:
    done = demo(tmp_path, "--keep")
    assert done.returncode == 0, done.stdout + done.stderr
    pids = re.search(r"kill (\d+) (\d+)", done.stdout)
    url = re.search(r"service +(http://\S+)", done.stdout)
    assert pids is not None
    try:
        assert url is not None
        assert httpx.get(f"{url[1]}/health/ready", timeout=5).status_code == 200
    finally:
        for pid in pids.groups():
            os.kill(int(pid), signal.SIGTERM)
    wait_until(lambda: not any(_lives(int(pid)) for pid in pids.groups()), "the end of both")


def _lives(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def restart(**changes: int) -> Restart:
    """A kill after ten verdicts that cost one call for each slot."""
    missing = len(PAIRS) - 10
    whole = {"verdicts_before": 10, "calls_before": 14, "missing": missing, "calls_after": missing + JUDGE_SLOTS}
    return Restart(**(whole | {"asked_again": 0, "resent": 48} | changes))


@pytest.mark.parametrize(
    "broken",
    [
        {"verdicts_before": 0},
        {"verdicts_before": len(PAIRS)},
        {"calls_after": len(PAIRS) - 10 + JUDGE_SLOTS + 1},
        {"asked_again": 1},
    ],
)
def test_a_kill_that_cost_more_than_the_slots_fails_the_demo(broken: dict[str, int]) -> None:
    check(restart())
    with pytest.raises(DemoFailed):
        check(restart(**broken))


def test_the_demo_sends_the_shapes_that_trainers_send() -> None:
    assert all(len(set(prompt.answers)) == SIBLINGS for prompt in PROMPTS)
    assert len({prompt.group_id for prompt in PROMPTS}) == len(PROMPTS) >= 4
    shapes = {prompt.shape for prompt in PROMPTS}
    assert {"one question", "multi-turn", "parts of text", "with a system"} <= shapes
    assert len(PAIRS) == len(PROMPTS) * SIBLINGS

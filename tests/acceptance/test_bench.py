"""`ops/bench` measures the real thing: its runs end with the judge's rewards, and it fails when they do not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def bench(tmp_path: Path, *arguments: str) -> list[dict[str, Any]]:
    """The JSON lines of a short run."""
    done = subprocess.run(
        [sys.executable, "-m", "bench", *arguments, "--runs", "1", "--in-flight", "4", "--folder", str(tmp_path)],
        env=os.environ | {"PYTHONPATH": f"{ROOT}/ops/lib:{ROOT}/app:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Medians" in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("on", ["sqlite", "postgres"])
def test_a_run_measures_cost_rate_and_release_and_checks_every_reward(on: str, tmp_path: Path) -> None:
    (line,) = bench(tmp_path, "verify", "--engine", on, "--cohorts", "12")
    assert line["scenario"] == "verify"
    assert line["engine"] == on
    assert line["wrong_cohorts"] == 0
    for figure in ("verifies_per_s", "cpu_s_per_1000", "release_p50_ms", "release_p99_ms"):
        assert line[figure] > 0
    assert list(tmp_path.iterdir()) == []


def test_replay_hold_and_restart_end_with_every_reward(tmp_path: Path) -> None:
    lines = bench(tmp_path, "lone", "replay", "hold", "restart", "--cohorts", "16", "--judge-ms", "20")
    assert [line["scenario"] for line in lines] == ["lone", "replay", "hold", "restart"]
    assert not any(line["wrong_cohorts"] for line in lines)
    _, replay, hold, restart = lines
    assert replay["changed"] == replay["judge_calls"] == 0
    assert hold["waiting"] == 16 * 7
    assert 0 <= restart["repeated_calls"] <= 16

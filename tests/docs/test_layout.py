"""The layout of the code: imports point down, and every room has space left (DESIGN 2, STYLE)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FULL_ROOM = 400


def test_imports_point_down_and_the_rules_of_cohorts_do_no_io() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "3 kept, 0 broken" in done.stdout


def test_no_file_is_too_long_to_be_read() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text("utf-8").splitlines())
        for folder in ("app", "migrations", "ops", "tests")
        for path in (ROOT / folder).rglob("*.py")
    }
    assert len(lengths) > 100
    assert {name: length for name, length in lengths.items() if length > FULL_ROOM} == {}

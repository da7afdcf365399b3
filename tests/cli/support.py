"""Commands as a shell runs them: real processes, in a folder of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import Service

Start = Callable[..., Service]
NO_JUDGE = "http://127.0.0.1:9/v1"


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    status: int
    out: str
    err: str


def cohortd(folder: Path, *arguments: str, stdin: str = "", **settings: str) -> Done:
    """Run `cohortd` in the folder, with these settings in its environment and no others."""
    base = {name: value for name, value in os.environ.items() if not name.startswith("COHORTD_")}
    done = subprocess.run(
        [sys.executable, "-m", "cohortd", *arguments],
        env=base | {f"COHORTD_{name.upper()}": value for name, value in settings.items()} | {"COLUMNS": "120"},
        cwd=folder,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stderr[-3000:]
    return Done(done.returncode, done.stdout, done.stderr)

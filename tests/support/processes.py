"""Real processes: the service and the mock judge, started, watched and killed by tests."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from tests.support.postgres import free_port

PR_SET_PDEATHSIG = 1
START_WITHIN_S = 30.0


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def wait_until(condition: Any, what: str, within_s: float = START_WITHIN_S) -> None:
    """Return as soon as the condition holds; fail the test when it does not hold in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {within_s} s"
        time.sleep(0.01)


class Process:
    """A `python -m cohortd` of its own, with its output in files."""

    def __init__(self, folder: Path, name: str, arguments: list[str], env: dict[str, str] | None = None) -> None:
        self.out = folder / f"{name}.out"
        self.err = folder / f"{name}.err"
        base = {key: value for key, value in os.environ.items() if not key.startswith("COHORTD_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cohortd", *arguments],
            stdout=self.out.open("ab"),
            stderr=self.err.open("ab"),
            env=base | (env or {}),
            cwd=folder,
            preexec_fn=_die_with_parent,  # noqa: PLW1509
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.running:
            self._process.kill()
        self._process.wait(30)

    def stop(self, within_s: float = 20.0) -> int:
        """SIGTERM; its exit status."""
        self._process.terminate()
        return self._process.wait(within_s)

    def wait(self, within_s: float = START_WITHIN_S) -> int:
        """Its exit status, when it ends by itself."""
        return self._process.wait(within_s)

    def wait_for_output(self, text: str, within_s: float = START_WITHIN_S) -> None:
        """Return when it has printed the text."""
        wait_until(lambda: text in self.out.read_text() or not self.running, f"{text!r} on stdout", within_s)
        assert text in self.out.read_text(), self.err.read_text()[-3000:]


class MockJudge(Process):
    """`cohortd mock-judge`."""

    def __init__(self, folder: Path, *options: str, port: int | None = None) -> None:
        self.port = port or free_port()
        super().__init__(folder, f"judge-{self.port}", ["mock-judge", "--port", str(self.port), *options])
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.wait_for_output("listening")

    def calls(self) -> list[dict[str, Any]]:
        """Every call, in order."""
        found: list[dict[str, Any]] = httpx.get(f"http://127.0.0.1:{self.port}/calls", timeout=10).json()
        return found

    def stats(self) -> dict[str, Any]:
        """Counts."""
        found: dict[str, Any] = httpx.get(f"http://127.0.0.1:{self.port}/stats", timeout=10).json()
        return found


class Service(Process):
    """`cohortd serve` over a database and a judge."""

    def __init__(
        self,
        folder: Path,
        database_url: str,
        judge_url: str,
        *,
        port: int | None = None,
        wait: bool = True,
        **settings: Any,
    ) -> None:
        self.port = port or free_port()
        self.database_url = database_url
        env = {
            "COHORTD_DATABASE_URL": database_url,
            "COHORTD_JUDGE_URLS": judge_url,
            "COHORTD_PORT": str(self.port),
            "COHORTD_NUM_ROLLOUTS_PER_PROMPT": "8",
        } | {f"COHORTD_{name.upper()}": str(value) for name, value in settings.items()}
        super().__init__(folder, f"service-{self.port}", ["serve"], env)
        self.url = f"http://127.0.0.1:{self.port}"
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Return when it may be sent work."""
        wait_until(lambda: self._ready() or not self.running, "readiness")
        assert self.running, self.err.read_text()[-3000:]

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health/ready", timeout=2).status_code == 200
        except httpx.TransportError:
            return False

    def events(self, name: str) -> list[dict[str, Any]]:
        """Its log lines of this event."""
        lines = [json.loads(line) for line in self.err.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("event") == name]

"""The processes of a run: a mock judge, the service of some revision, and what they cost by /proc."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
from tests.support.postgres import PostgresServer, free_port

PR_SET_PDEATHSIG: Final = 1
START_WITHIN_S: Final = 60.0
TICKS: Final = os.sysconf("SC_CLK_TCK")
PAGE_KB: Final = os.sysconf("SC_PAGE_SIZE") // 1024


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Measured:
    """A process that may be another program's: what it has used so far."""

    def __init__(self, pid: int) -> None:
        self.pid: Final = pid

    def cpu_s(self) -> float:
        """CPU seconds of all its threads, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def rss_kb(self) -> int:
        """Resident memory."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE_KB


class Server(Measured):
    """`python -m cohortd ...` from a checkout, until it is stopped."""

    def __init__(self, app: Path, folder: Path, name: str, arguments: list[str], settings: dict[str, Any]) -> None:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("COHORTD_")}
        set_here = {f"COHORTD_{key.upper()}": str(value) for key, value in settings.items()}
        self._log = folder / f"{name}.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cohortd", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=inherited | set_here | {"PYTHONPATH": str(app)},
                preexec_fn=_die_with_parent,  # noqa: PLW1509
            )
        super().__init__(self._process.pid)

    def wait_for(self, url: str) -> None:
        """Return when the URL answers 200."""
        deadline = time.monotonic() + START_WITHIN_S
        while not answers(url):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self._log.name} did not start:\n{self._log.read_text()[-2000:]}")
            time.sleep(0.005)

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """SIGTERM, then SIGKILL."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()


class Judge(Server):
    """`cohortd mock-judge`, always of this checkout: it is the same for all that is measured."""

    def __init__(self, app: Path, folder: Path, latency_ms: float, port: int | None = None) -> None:
        port = port or free_port()
        self._root = f"http://127.0.0.1:{port}"
        self.url = f"{self._root}/v1"
        super().__init__(app, folder, "judge", ["mock-judge", "--port", str(port), "--latency-ms", str(latency_ms)], {})
        self.wait_for(f"{self._root}/stats")

    def calls(self) -> int:
        """Calls so far."""
        return int(httpx.get(f"{self._root}/stats", timeout=10, trust_env=False).json()["calls"])


class Service(Server):
    """`cohortd serve`."""

    def __init__(self, app: Path, folder: Path, settings: dict[str, Any]) -> None:
        self.url = f"http://127.0.0.1:{settings['port']}"
        super().__init__(app, folder, "service", ["serve"], settings)
        self.wait_for(f"{self.url}/health/ready")


class Databases:
    """Fresh databases of one engine; Postgres is one real server for all runs."""

    def __init__(self, engine: str) -> None:
        self._postgres = PostgresServer() if engine == "postgres" else None
        if self._postgres is not None:
            self._postgres.start()

    @contextlib.contextmanager
    def fresh(self, folder: Path) -> Iterator[str]:
        """The URL of an empty database, which is dropped afterwards."""
        if self._postgres is None:
            yield f"sqlite+aiosqlite:///{folder / 'cohortd.db'}"
            return
        name = self._postgres.create_database()
        try:
            yield self._postgres.url(name)
        finally:
            self._postgres.drop_database(name)

    def close(self) -> None:
        """Stop the server."""
        if self._postgres is not None:
            self._postgres.close()


def answers(url: str) -> bool:
    """Whether the URL answers 200 now."""
    try:
        return httpx.get(url, timeout=2, trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def busy_cpu_s() -> float:
    """CPU seconds that this machine has spent on anything since it started."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / TICKS

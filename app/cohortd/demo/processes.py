"""The demo's two servers, each a process of its own: the service and a judge that is no model."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import httpx

START_WITHIN_S: Final = 20.0
LOOK_EVERY_S: Final = 0.02


class DemoFailed(Exception):
    """The demo did not show what it promised; the message says what was missing."""


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """`python -m cohortd ...` on a port, its output in a file of the demo's folder."""

    def __init__(self, folder: Path, name: str, arguments: list[str], settings: dict[str, Any], outlives: bool) -> None:
        self.log: Final = folder / f"{name}.log"
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("COHORTD_")}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "cohortd", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=inherited | {f"COHORTD_{key.upper()}": str(value) for key, value in settings.items()},
                start_new_session=outlives,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def wait_for(self, url: str) -> None:
        """Return when the URL answers 200; raise DemoFailed when the process ended or took too long."""
        deadline = time.monotonic() + START_WITHIN_S
        while not _answers(url):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise DemoFailed(f"{self.log.name}: the process did not start:\n{self.log.read_text()[-2000:]}")
            time.sleep(LOOK_EVERY_S)

    def kill(self) -> None:
        """SIGKILL, as the kernel does when memory runs out; returns when the process is gone."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL for what does not end by it."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(START_WITHIN_S)
            except subprocess.TimeoutExpired:
                self.kill()


class Judge(Server):
    """`cohortd mock-judge`, and its own log of calls."""

    def __init__(self, folder: Path, latency_ms: float, outlives: bool) -> None:
        self._root = f"http://127.0.0.1:{(port := free_port())}"
        self.url = f"{self._root}/v1"
        super().__init__(
            folder, "judge", ["mock-judge", "--port", str(port), "--latency-ms", str(latency_ms)], {}, outlives
        )
        self.wait_for(f"{self._root}/stats")

    def calls(self) -> list[str]:
        """The pair of every call so far, in order."""
        reply = httpx.get(f"{self._root}/calls", timeout=10, trust_env=False)
        return [call["pair"] for call in json.loads(reply.content)]


class Service(Server):
    """`cohortd serve` on the demo's database."""

    def __init__(self, folder: Path, settings: dict[str, Any], outlives: bool) -> None:
        self.url = f"http://127.0.0.1:{settings['port']}"
        super().__init__(folder, "service", ["serve"], settings, outlives)
        self.wait_for(f"{self.url}/health/ready")


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2, trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False

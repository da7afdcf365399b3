"""What is measured, and where: one checkout (or a peer), one engine, fresh processes and a fresh database for each run."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support.postgres import free_port

from bench.servers import Databases, Judge, Measured, Service, answers

ROOT: Final = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asked for."""

    engine: str = "sqlite"
    n: int = 8
    body_kb: int = 8
    judge_ms: float = 0.0
    in_flight: int = 64
    cohorts: int | None = None  # None: as many as the scenario wants
    runs: int = 5
    folder: Path | None = None
    profile: Path | None = None
    peer: str | None = None
    peer_pid: int | None = None
    peer_judge_port: int = 8900
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Running:
    """A judge and a service at work."""

    folder: Path
    url: str
    judge: Judge
    service: Measured | None  # None: a peer whose process is not known
    restart: Callable[[], None] = lambda: None  # starts the service again on the same database and port
    stop: Callable[[], None] = lambda: None


class Site:
    """Starts what a run needs, from one checkout."""

    def __init__(
        self, label: str, app: Path, options: Options, databases: Databases, revision: str | None = None
    ) -> None:
        self.label: Final = label
        self.revision: Final = revision  # None: this checkout as it is
        self.options: Final = options
        self._app: Final = app
        self._databases: Final = databases

    @contextlib.contextmanager
    def running(self, judge_ms: float, **settings: Any) -> Iterator[Running]:
        """A judge and a service, or the peer; all of ours is gone afterwards."""
        folder = Path(tempfile.mkdtemp(prefix="cohortd-bench-", dir=self.options.folder))
        try:
            with self._peer(folder, judge_ms) if self.options.peer else self._ours(folder, judge_ms, settings) as found:
                yield found
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def _ours(self, folder: Path, judge_ms: float, settings: dict[str, Any]) -> Iterator[Running]:
        with contextlib.ExitStack() as stack:
            judge = Judge(ROOT / "app", folder, judge_ms)
            stack.callback(judge.stop)
            named = {
                "database_url": stack.enter_context(self._databases.fresh(folder)),
                "port": free_port(),
                "judge_urls": judge.url,
                "judge_model": "mock-judge",
                "num_rollouts_per_prompt": self.options.n,
                **settings,
                **self.options.settings,
            }
            found = Running(folder, "", judge, None)

            def start() -> None:
                service = Service(self._app, folder, named)
                found.service, found.url, found.stop = service, service.url, service.stop

            found.restart = start
            start()
            stack.callback(lambda: found.stop())  # noqa: PLW0108 (the process that runs by then)
            yield found

    @contextlib.contextmanager
    def _peer(self, folder: Path, judge_ms: float) -> Iterator[Running]:
        """The peer runs already, and asks a judge on the port that --peer-judge-port names."""
        options = self.options
        if answers(f"http://127.0.0.1:{options.peer_judge_port}/stats"):
            raise SystemExit(f"port {options.peer_judge_port} is taken; the bench starts the peer's judge there itself")
        judge = Judge(ROOT / "app", folder, judge_ms, options.peer_judge_port)
        try:
            process = Measured(options.peer_pid) if options.peer_pid else None
            yield Running(folder, str(options.peer), judge, process)
        finally:
            judge.stop()

    @contextlib.contextmanager
    def profiled(self, running: Running) -> Iterator[None]:
        """Sample the service's stacks meanwhile, folded, into --profile's file (one run appends to the next)."""
        if self.options.profile is None or running.service is None or self.revision is not None:
            yield
            return
        part = running.folder / "folded"
        command = [
            str(Path(sys.executable).parent / "py-spy"),
            "record",
            "--nonblocking",
            "--rate",
            "250",
            "--format",
            "raw",
        ]
        sampler = subprocess.Popen(
            [*command, "--output", str(part), "--pid", str(running.service.pid), "--duration", "3600"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield
        finally:
            sampler.send_signal(signal.SIGINT)
            sampler.wait(60)
            with self.options.profile.open("ab") as kept:
                kept.write(part.read_bytes())


@contextlib.contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """The app folder of another revision, in a worktree that is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="cohortd-revision-")) / "tree"
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(folder), revision], check=True)
    try:
        yield folder / "app"
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)
        shutil.rmtree(folder.parent, ignore_errors=True)

"""Where a scenario takes place: a judge, a service, and runs of Gym's collector, in a folder of their own."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support.postgres import free_port
from tests.support.processes import PR_SET_PDEATHSIG, MockJudge, Service
from tests.support.requests import expected_rewards

ROOT: Final = Path(__file__).resolve().parents[3]
GUIDE: Final = ROOT / "docs" / "guides" / "nemo-gym.md"
PROMPTS: Final = ("Name a prime.", "Name a colour.", "Name a harbour.")
REPEATS: Final = 4
GAVE_UP: Final = 3
COLLECTOR_WITHIN_S: Final = 180
SIDECAR_ATTEMPTS: Final = "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS"

Row = dict[str, Any]


class Broken(Exception):
    """A scenario did not end as it must."""


def check(holds: bool, what: str) -> None:
    """Fail the scenario unless it holds."""
    if not holds:
        raise Broken(what)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Collector:
    """A run of Gym's collector, and the agent that it talks to: one job, as people start it."""

    def __init__(self, folder: Path, plan: dict[str, Any], attempts: int) -> None:
        (folder / "plan.json").write_text(json.dumps(plan))
        python = ROOT / ".gym-venv" / "bin" / "python"
        with (folder / "collector.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(python), str(ROOT / "ops" / "lib" / "gym" / "collect.py"), str(folder / "plan.json")],
                stdout=log, stderr=log, cwd=folder, start_new_session=True,
                env=os.environ | {SIDECAR_ATTEMPTS: str(attempts), "RECORD": str(folder / "exchanges.jsonl")},
                preexec_fn=_die_with_parent,  # noqa: PLW1509
            )  # fmt: skip

    def wait(self) -> int:
        """Its exit status, when it has ended by itself."""
        try:
            return self._process.wait(COLLECTOR_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Broken(f"the collector did not end within {COLLECTOR_WITHIN_S} s") from None

    def kill(self) -> None:
        """SIGKILL to the whole job, as a scheduler does at the end of the time that was granted."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@dataclass
class World:
    """A folder, a judge and a service, and runs of Gym's collector against it."""

    folder: Path
    judge_port: int = field(default_factory=free_port)
    port: int = field(default_factory=free_port)
    service: Service | None = None
    judges: list[MockJudge] = field(default_factory=list)
    collectors: list[Collector] = field(default_factory=list)

    def judge(self, *options: str) -> MockJudge:
        """Start the judge."""
        self.judges.append(MockJudge(self.folder, *options, port=self.judge_port))
        return self.judges[-1]

    def serve(self, **settings: Any) -> Service:
        """Start the service, or start it again on its database."""
        named = {"num_rollouts_per_prompt": REPEATS, "lease_s": 2} | settings
        judge = f"http://127.0.0.1:{self.judge_port}/v1"
        self.service = Service(self.folder, self.database_url, judge, port=self.port, **named)
        return self.service

    @property
    def database_url(self) -> str:
        """Where the service keeps its cohorts."""
        return f"sqlite+aiosqlite:///{self.folder / 'cohortd.db'}"

    def sql(self, query: str) -> list[Any]:
        """The rows of a query, read as `sqlite3` would."""
        with contextlib.closing(sqlite3.connect(self.folder / "cohortd.db")) as connection:
            return connection.execute(query).fetchall()

    def release(self, task: int) -> None:
        """`cohortd release`, as the failure's own text advises."""
        subprocess.run(
            [sys.executable, "-m", "cohortd", "release", "--task-index", str(task)],
            env=os.environ | {"COHORTD_DATABASE_URL": self.database_url}, cwd=self.folder, check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip

    def start(
        self, *, repeats: int = REPEATS, resume: bool = False, seed: int = 1, attempts: int = 3, **policy: Any
    ) -> Collector:
        """Start the collector. `withheld` = a prompt whose last answer never comes, `long` = one answered at length."""
        plan = {
            "service_port": self.port, "seed": seed, "input": str(self.folder / "prompts.jsonl"),
            "output": str(self.folder / "rollouts.jsonl"), "repeats": repeats, "resume": resume, "policy": policy,
        }  # fmt: skip
        rows = [{"responses_create_params": {"input": [{"role": "user", "content": prompt}]}} for prompt in PROMPTS]
        (self.folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.collectors.append(Collector(self.folder, plan, attempts))
        return self.collectors[-1]

    def collect(self, **options: Any) -> int:
        """Run the collector; its exit status."""
        return self.start(**options).wait()

    def file(self, name: str = "rollouts") -> Path:
        """One of the collector's files."""
        return self.folder / f"{name}.jsonl"

    def rows(self, name: str = "rollouts") -> list[Row]:
        """The rows of one of the collector's files."""
        path = self.file(name)
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def told(self) -> list[tuple[int, str | None]]:
        """(status, code of the problem) of every reply to `/verify` so far, in order."""
        verified = [row for row in self.rows("exchanges") if row["path"] == "/verify"]
        return [(row["status"], row["reply"].get("code")) for row in verified]

    def metrics(self) -> Row:
        """What the collector was told by `/aggregate_metrics`."""
        found: Row = json.loads((self.folder / "rollouts_aggregate_metrics.json").read_text())[0]["agent_metrics"]
        return found

    def prepare_the_resume(self) -> None:
        """Run the guide's own lines for a resume, beside the collector's files."""
        (lines,) = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
        subprocess.run([sys.executable, "-c", lines], cwd=self.folder, check=True)

    def close(self) -> None:
        """End everything."""
        for process in (*self.collectors, *self.judges, self.service):
            if process is not None:
                process.kill()


def right(rows: list[Row]) -> bool:
    """Whether there are whole groups alone, and each reward is what the judge's scores of the collected answers give."""
    for task in {row["_ng_task_index"] for row in rows}:
        own = sorted((row for row in rows if row["_ng_task_index"] == task), key=lambda row: row["_ng_rollout_index"])
        answers = [row["response"]["output"][0]["content"][0]["text"] for row in own]
        if len(own) != REPEATS or [row["reward"] for row in own] != expected_rewards(answers):
            return False
    return True


@contextlib.contextmanager
def world() -> Iterator[World]:
    """A fresh one; everything of it is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="cohortd-gym-") as folder:
        found = World(Path(folder))
        try:
            yield found
        finally:
            found.close()

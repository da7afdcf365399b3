"""The command line of `ops/gym`: what Gym's users live through, seen with Gym's own collector and agent."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
from tests.support.postgres import free_port
from tests.support.processes import MockJudge, Service, wait_until
from tests.support.requests import expected_rewards

ROOT: Final = Path(__file__).resolve().parents[3]
PROMPTS: Final = ("Name a prime.", "Name a colour.", "Name a harbour.")
REPEATS: Final = 4
GAVE_UP: Final = 3
SIDECAR_ATTEMPTS: Final = "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS"


class Broken(Exception):
    """A scenario did not end as it must."""


def check(holds: bool, what: str) -> None:
    """Fail the scenario unless it holds."""
    if not holds:
        raise Broken(what)


@dataclass
class World:
    """A folder, a judge and a service, and runs of Gym's collector against it."""

    folder: Path
    judge_port: int = field(default_factory=free_port)
    port: int = field(default_factory=free_port)
    service: Service | None = None
    judges: list[MockJudge] = field(default_factory=list)

    def judge(self, *options: str) -> MockJudge:
        """Start the judge."""
        self.judges.append(MockJudge(self.folder, *options, port=self.judge_port))
        return self.judges[-1]

    def serve(self, **settings: Any) -> Service:
        """Start the service, or start it again on its database."""
        named = {"num_rollouts_per_prompt": REPEATS, "lease_s": 2} | settings
        url = f"sqlite+aiosqlite:///{self.folder / 'cohortd.db'}"
        judge = f"http://127.0.0.1:{self.judge_port}/v1"
        self.service = Service(self.folder, url, judge, port=self.port, **named)
        return self.service

    def collect(self, *, repeats: int = REPEATS, resume: bool = False, seed: int = 1, attempts: int = 3) -> int:
        """Run the collector; its exit status."""
        plan = {
            "service_port": self.port, "seed": seed, "input": str(self.folder / "prompts.jsonl"),
            "output": str(self.folder / "rollouts.jsonl"), "repeats": repeats, "resume": resume,
        }  # fmt: skip
        rows = [{"responses_create_params": {"input": [{"role": "user", "content": prompt}]}} for prompt in PROMPTS]
        (self.folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (self.folder / "plan.json").write_text(json.dumps(plan))
        python = ROOT / ".gym-venv" / "bin" / "python"
        with (self.folder / "collector.log").open("ab") as log:
            done = subprocess.run(
                [str(python), str(ROOT / "ops" / "lib" / "gym" / "collect.py"), str(self.folder / "plan.json")],
                stdout=log, stderr=log, cwd=self.folder, env=os.environ | {SIDECAR_ATTEMPTS: str(attempts)}, timeout=180, check=False,
            )  # fmt: skip
        return done.returncode

    def rows(self, name: str = "rollouts") -> list[dict[str, Any]]:
        """The rows of one of the collector's files."""
        path = self.folder / f"{name}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def close(self) -> None:
        """End everything."""
        for process in (*self.judges, self.service):
            if process is not None:
                process.kill()


def right(rows: list[dict[str, Any]]) -> bool:
    """Whether every reward is what the judge's scores of the collected answers give."""
    for task in {row["_ng_task_index"] for row in rows}:
        own = sorted((row for row in rows if row["_ng_task_index"] == task), key=lambda row: row["_ng_rollout_index"])
        answers = [row["response"]["output"][0]["content"][0]["text"] for row in own]
        if len(own) != REPEATS or [row["reward"] for row in own] != expected_rewards(answers):
            return False
    return True


def all_is_well(world: World) -> str:
    """Every reward is the judge's, and a resume asks nobody."""
    judge = world.judge()
    world.serve()
    check(world.collect() == 0, "the collector gave up")
    rows = world.rows()
    check(len(rows) == REPEATS * len(PROMPTS) and right(rows), "a reward is not the judge's")
    before, calls = (world.folder / "rollouts.jsonl").read_bytes(), len(judge.calls())
    for _ in range(2):
        check(world.collect(resume=True, seed=2) == 0, "the resume gave up")
    check((world.folder / "rollouts.jsonl").read_bytes() == before, "a resume changed the rollouts")
    check(len(judge.calls()) == calls, "a resume asked the judge")
    return f"{len(rows)} rollouts, {calls} judge calls; two resumes made none"


def a_sibling_is_missing(world: World) -> str:
    """Fewer repeats than the group has: 503, which Gym's agent turns into a failed run."""
    judge = world.judge()
    world.serve(cohort_collection_timeout_s=1)
    check(world.collect(repeats=REPEATS - 1) == GAVE_UP, "the collector went on without the missing siblings")
    check(not world.rows(), "a rollout without a reward was collected")
    check(not judge.calls(), "an incomplete group was judged")
    return "the agent raises on our 503 collection_timeout, so the run ends and nothing is collected"


def the_judge_is_away(world: World) -> str:
    """An outage longer than the deadline: masked rows in the sidecar, none among the rollouts, no number anywhere."""
    world.serve(cohort_evaluation_timeout_s=1)
    check(world.collect() == 0, "the collector gave up")
    failed = world.rows("rollouts_failures")
    check(not world.rows() and len(failed) == REPEATS * len(PROMPTS), "failures are among the rollouts")
    check({row["_ng_failure_class"] for row in failed} == {"judge_failed"}, "a failure has another class")
    check(all(row["mask_sample"] and row["instance_config"]["mask_sample"] for row in failed), "a mask is missing")
    metrics = json.loads((world.folder / "rollouts_aggregate_metrics.json").read_text())[0]
    check("mean/reward" not in metrics["agent_metrics"], "placeholders were averaged")
    sidecar = world.folder / "rollouts_failures.jsonl"
    before = sidecar.read_bytes()
    judge = world.judge()
    check(world.collect(resume=True, seed=2, attempts=1) == 0, "the resume gave up")
    check(sidecar.read_bytes() == before, "a resume that retries nothing changed the sidecar")
    check(world.collect(resume=True, seed=3) == 0, "the second resume gave up")
    check(sidecar.read_bytes().startswith(before), "a resume changed earlier bytes of the sidecar")
    told = {row["failure_reason"] for row in world.rows("rollouts_failures")[len(failed) :]}
    check(told != set() and all("cohortd release" in reason for reason in told), "the fence does not say what lifts it")
    check(not judge.calls(), "a failed run was judged")
    return f"{len(failed)} masked rows in the sidecar; resumes made no judge call and kept its bytes"


def failures_count_as_zero(world: World) -> str:
    """`count_failure_classes_as_zero` takes the failures into the means, and into nothing else."""
    world.serve(cohort_evaluation_timeout_s=1, count_failure_classes_as_zero="judge_failed")
    check(world.collect() == 0, "the collector gave up")
    metrics = json.loads((world.folder / "rollouts_aggregate_metrics.json").read_text())[0]
    check(metrics["agent_metrics"]["mean/reward"] == 0.0, "failures were not counted as zero")
    check(not world.rows(), "a failure is among the rollouts")
    return "mean/reward is 0 with it; without it (above) there is no mean"


def it_dies_in_the_middle(world: World) -> str:
    """SIGTERM, then SIGKILL, in the middle of judging: Gym's own client waits through both."""
    judge = world.judge("--latency-ms", "150")
    service = world.serve(judge_concurrency=1, drain_s=2)
    ended: list[int] = []
    collecting = threading.Thread(target=lambda: ended.append(world.collect()))
    collecting.start()
    for number, sign in enumerate((signal.SIGTERM, signal.SIGKILL), 1):
        wait_until(lambda number=number: len(judge.calls()) >= 3 * number, "judge calls", 60)
        service.send(sign)
        service.wait()
        service = world.serve(judge_concurrency=1, drain_s=2)
    collecting.join()
    check(ended == [0], "the collector gave up")
    rows = world.rows()
    check(len(rows) == REPEATS * len(PROMPTS) and right(rows), "a reward is not the judge's")
    calls = len(judge.calls())
    check(calls <= REPEATS * len(PROMPTS) + 1, "more calls were repeated than there were slots")
    return f"every reward right, {calls} calls for {REPEATS * len(PROMPTS)} pairs"


SCENARIOS: Final = (
    all_is_well, a_sibling_is_missing, the_judge_is_away, failures_count_as_zero, it_dies_in_the_middle,
)  # fmt: skip


@contextlib.contextmanager
def world() -> Iterator[World]:
    """A fresh one; everything of it is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="cohortd-gym-") as folder:
        found = World(Path(folder))
        try:
            yield found
        finally:
            found.close()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, type=click.Choice([scenario.__name__ for scenario in SCENARIOS]))
@click.option("--record", type=click.Path(path_type=Path), help="Keep what Gym sent, and what it got, in this folder.")
def gym(names: tuple[str, ...], record: Path | None) -> None:
    """Run NeMo Gym's collector and agent against the service; exit status 0 when all ends as it must.

    Example: ops/gym the_judge_is_away
    """
    broken = False
    for scenario in SCENARIOS:
        if names and scenario.__name__ not in names:
            continue
        if record is not None:
            kept = record.resolve() / f"{scenario.__name__}.jsonl"
            kept.unlink(missing_ok=True)
            os.environ["RECORD"] = str(kept)
        with world() as found:
            try:
                click.echo(f"ok      {scenario.__name__}: {scenario(found)}")
            except Broken as what:
                broken = True
                click.echo(f"BROKEN  {scenario.__name__}: {what}")
                click.echo((found.folder / "collector.log").read_text()[-2000:], err=True)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    gym(prog_name="ops/gym")

"""The demo's course: send, kill in the middle of judging, restart, compare with the judge's own log, replay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cohortd.demo import records
from cohortd.demo.client import Rewards, Trainer
from cohortd.demo.processes import DemoFailed, Judge, Service, free_port
from cohortd.demo.prompts import PROMPTS, Prompt
from cohortd.mock_judge import pair_key

SIBLINGS: Final = 8
JUDGE_SLOTS: Final = 4
JUDGE_LATENCY_MS: Final = 250.0
KILL_WITHIN_S: Final = 20.0
LOOK_EVERY_S: Final = 0.02
PAIRS: Final = {  # circular: each sibling against the next
    pair_key(prompt.answers[slot], prompt.answers[(slot + 1) % SIBLINGS]): (
        prompt.group_id,
        slot,
        (slot + 1) % SIBLINGS,
    )
    for prompt in PROMPTS
    for slot in range(SIBLINGS)
}


@dataclass(frozen=True, slots=True)
class Restart:
    """What the kill left, and what the judge was asked after it, by the judge's own log."""

    verdicts_before: int
    calls_before: int
    missing: int
    calls_after: int
    asked_again: int  # calls after the kill for pairs that had a verdict
    resent: int  # requests whose connection dropped, and which the trainer sent again


@dataclass(slots=True)
class Stage:
    """The running servers and the folder that holds all they write."""

    folder: Path
    judge: Judge
    service: Service
    settings: dict[str, Any]
    outlives: bool

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.folder / "cohortd.db"

    def start_again(self) -> None:
        """Start the service again on the same file and port."""
        self.service = Service(self.folder, self.settings, self.outlives)

    def stop(self) -> None:
        """End both servers."""
        self.service.stop()
        self.judge.stop()


def set_up(folder: Path, outlives: bool) -> Stage:
    """A judge and a service on a fresh SQLite file, both ready."""
    judge = Judge(folder, JUDGE_LATENCY_MS, outlives)
    settings = {
        "database_url": f"sqlite+aiosqlite:///{folder / 'cohortd.db'}",
        "port": free_port(),
        "num_rollouts_per_prompt": SIBLINGS,
        "judge_urls": judge.url,
        "judge_model": "mock-judge",
        "judge_concurrency": JUDGE_SLOTS,
        "log_format": "console",
    }
    try:
        return Stage(folder, judge, Service(folder, settings, outlives), settings, outlives)
    except BaseException:
        judge.stop()
        raise


async def judged_through_a_kill(
    stage: Stage, progress: Callable[[int], None], on_kill: Callable[[int], None]
) -> tuple[Rewards, Restart]:
    """The rewards of all rollouts, although the service is killed when a third of the verdicts is stored."""
    trainer = Trainer(stage.service.url)
    sending = asyncio.create_task(trainer.rewards(PROMPTS))
    try:
        await _stored(stage, len(PAIRS) // 3, progress, sending)
        await _calls_in_flight(stage)
        stage.service.kill()
        calls_before = len(stage.judge.calls())
        before = {(group, first, second) for group, first, second, *_ in records.verdicts(stage.database)}
        on_kill(len(before))
        await asyncio.to_thread(stage.start_again)
        await _stored(stage, len(PAIRS), progress, sending)
        rewards = await sending
    finally:
        sending.cancel()
    after = stage.judge.calls()[calls_before:]
    return rewards, Restart(
        verdicts_before=len(before),
        calls_before=calls_before,
        missing=len(PAIRS) - len(before),
        calls_after=len(after),
        asked_again=sum(PAIRS[key] in before for key in after),
        resent=trainer.resent,
    )


async def _calls_in_flight(stage: Stage) -> None:
    """Return when the judge is at work on pairs without a verdict, so that the kill cuts calls off."""
    async with asyncio.timeout(KILL_WITHIN_S):
        while len(stage.judge.calls()) <= len(records.verdicts(stage.database)):  # noqa: ASYNC110 (another process)
            await asyncio.sleep(LOOK_EVERY_S)


async def _stored(stage: Stage, wanted: int, progress: Callable[[int], None], sending: asyncio.Task[Rewards]) -> None:
    """Return when so many verdicts are stored; the only clock is the database."""
    async with asyncio.timeout(KILL_WITHIN_S):
        while (found := len(records.verdicts(stage.database))) < wanted:
            if sending.done():
                sending.result()
                raise DemoFailed(f"all rewards are there, but only {found} of {wanted} verdicts")
            progress(found)
            await asyncio.sleep(LOOK_EVERY_S)
    progress(found)


def check(restart: Restart) -> None:
    """Raise DemoFailed unless the kill came in the middle and only missing verdicts were judged after it."""
    if not 0 < restart.verdicts_before < len(PAIRS):
        raise DemoFailed(f"the kill did not come in the middle of judging: {restart.verdicts_before} verdicts stood")
    if restart.calls_after > restart.missing + JUDGE_SLOTS:
        raise DemoFailed(f"{restart.calls_after} calls were made for {restart.missing} missing verdicts")
    if restart.asked_again:
        raise DemoFailed(f"{restart.asked_again} pairs were judged again although their verdict was stored")


async def replayed(stage: Stage, rewards: Rewards, prompts: tuple[Prompt, ...] = PROMPTS) -> int:
    """Send every rollout again: how many rewards came back, each identical, without one judge call."""
    calls = len(stage.judge.calls())
    again = await Trainer(stage.service.url).rewards(prompts)
    if again != rewards:
        raise DemoFailed("a replayed reward differs from the first one")
    if len(stage.judge.calls()) != calls:
        raise DemoFailed("a replay asked the judge")
    return len(again)

"""`cohortd demo`: the service at work, killed in the middle of it, and at work again."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cohortd.demo import screen, story
from cohortd.demo.processes import DemoFailed
from cohortd.demo.prompts import PROMPTS


@click.command()
@click.option("--keep", is_flag=True, help="Leave the service and the judge running, and their folder in place.")
def demo(keep: bool) -> None:
    """Judge six real-shaped groups, with a SIGKILL in the middle, and show that nothing was lost.

    The judge is no model: it scores by a digest of the two texts, so that every number can be recomputed. Exits with 1
    when anything that the demo claims did not happen.

    Example: cohortd demo --keep
    """
    console = Console()
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="cohortd-demo-"))
    try:
        console.print(
            f"Starting a judge that is no model, and the service on a fresh SQLite file in {folder}", soft_wrap=True
        )
        stage = story.set_up(folder, outlives=keep)
        kept = False
        try:
            asyncio.run(_play(console, stage))
            kept = keep
        finally:
            if not kept:
                stage.stop()
        console.print(f"\nDone in {time.monotonic() - started:.0f} s.")
        if kept:
            screen.left_running(console, stage)
    except (DemoFailed, TimeoutError) as error:
        raise click.ClickException(f"the demo failed: {error or 'it took too long'}") from error
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


async def _play(console: Console, stage: story.Stage) -> None:
    rollouts = len(PROMPTS) * story.SIBLINGS
    console.print(f"Sending {rollouts} rollouts of {len(PROMPTS)} prompts to {stage.service.url}/verify\n")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("verdicts stored", total=len(story.PAIRS))
        rewards, restart = await story.judged_through_a_kill(
            stage,
            lambda stored: progress.update(bar, completed=stored),
            lambda stored: progress.console.print(f"[red]SIGKILL[/red] at {stored} verdicts; starting it again"),
        )
    console.print()
    console.print(screen.rewards_table(rewards))
    console.print(screen.verdicts_table(PROMPTS[0], stage.database, max(16, (console.width - 22) // 2)))
    screen.restart_lines(console, restart)
    story.check(restart)
    replays = await story.replayed(stage, rewards)
    console.print(f"\n{replays} rollouts sent again: {replays} identical rewards, 0 judge calls.")
    screen.looks(console, stage)

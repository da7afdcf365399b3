"""What the demo prints."""

from __future__ import annotations

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cohortd.demo import records
from cohortd.demo.client import Rewards
from cohortd.demo.prompts import PROMPTS, Prompt
from cohortd.demo.story import JUDGE_SLOTS, SIBLINGS, Restart, Stage


def _one_line(text: str) -> str:
    return escape(" ".join(text.split()))


def rewards_table(rewards: Rewards) -> Table:
    """One row for each group, one column for each sibling."""
    table = Table(title="Rewards by slot", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("group", no_wrap=True)
    table.add_column("prompt", no_wrap=True)
    for slot in range(SIBLINGS):
        table.add_column(str(slot), justify="right", no_wrap=True)
    for prompt in PROMPTS:
        row = [f"{rewards[prompt.group_id, slot]:.2f}" for slot in range(SIBLINGS)]
        table.add_row(prompt.group_id, prompt.shape, *row)
    return table


def verdicts_table(prompt: Prompt, database: Path, width: int) -> Table:
    """The pairwise verdicts of one cohort, with so many characters of each answer."""
    title = f"Verdicts of {prompt.group_id}: scores 1 to 5; ranking 1 (first much better) to 6"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("first", no_wrap=True, width=width)
    table.add_column("second", no_wrap=True, width=width)
    table.add_column("scores", justify="right", no_wrap=True)
    table.add_column("ranking", justify="right", no_wrap=True)
    for group, first, second, score_1, score_2, ranking in records.verdicts(database):
        if group == prompt.group_id:
            table.add_row(
                f"{first} {_one_line(prompt.answers[first])}",
                f"{second} {_one_line(prompt.answers[second])}",
                f"{score_1:g} : {score_2:g}",
                f"{ranking:g}",
            )
    return table


def restart_lines(console: Console, restart: Restart) -> None:
    """What was judged before and after the kill, by the judge's own log."""
    console.print("\n[bold]What the kill cost[/bold], by the judge's own log of calls:")
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(justify="right")
    table.add_column()
    for number, what in (
        (restart.calls_before, "calls had begun when SIGKILL came"),
        (restart.verdicts_before, "verdicts of them were stored; the other calls were cut off"),
        (restart.missing, "verdicts were missing"),
        (restart.calls_after, f"calls were made after the restart (allowed: missing + {JUDGE_SLOTS} judge slots)"),
        (restart.asked_again, "of them for a pair that had its verdict"),
        (restart.resent, "requests lost their connection, and the trainer sent them again"),
    ):
        table.add_row(str(number), what)
    console.print(table)


def looks(console: Console, stage: Stage) -> None:
    """The SQL that one would type to look, on the file that this demo wrote."""
    kept = "" if stage.outlives else " (with --keep the file stays)"
    console.print(f"\n[bold]Look yourself[/bold]{kept}: sqlite3 {stage.database}", soft_wrap=True, highlight=False)
    for what, sql in records.LOOKS:
        records.query(stage.database, sql)  # what is printed here has been run
        console.print(f"  [dim]-- {what}[/dim]", highlight=False)
        console.print(f"  {sql};", soft_wrap=True, highlight=False, markup=False)


def left_running(console: Console, stage: Stage) -> None:
    """Where the service is, and how to end it."""
    console.print("\n[bold]Left running[/bold]")
    for name, server, url in (("service", stage.service, stage.service.url), ("judge", stage.judge, stage.judge.url)):
        console.print(f"  {name:8} {url}  process {server.pid}, log {server.log}", soft_wrap=True, highlight=False)
    console.print(f"  end both: kill {stage.service.pid} {stage.judge.pid}; rm -r {stage.folder}", soft_wrap=True)

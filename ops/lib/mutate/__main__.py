"""The command line of `ops/mutate`."""

from __future__ import annotations

import concurrent.futures
import os
import queue
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import Progress

from mutate.mutations import MUTATIONS, Mutation

ROOT: Final = Path(__file__).resolve().parents[3]
COPIED: Final = (
    "app",
    "tests",
    "ops",
    "migrations",
    "docs",
    "alembic.ini",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
)
FAILED: Final = 1  # pytest's status when tests ran and one failed
WITHIN_S: Final = 600


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--rule", "rules", multiple=True, help="Only the edits of this rule; may be given again.")
@click.option("--jobs", type=click.IntRange(1), default=2, show_default=True, help="Edits tried at once.")
def mutate(rules: tuple[str, ...], jobs: int) -> None:
    """Apply one-line edits to copies of the code, one at a time, and say which no test notices.

    Exit status 0 when each makes a test fail. Tests run on SQLite; what only Postgres could notice is not tried.

    Example: ops/mutate --rule L5 --rule R44
    """
    chosen = [mutation for mutation in MUTATIONS if not rules or mutation.rule in rules]
    copies: queue.Queue[Path] = queue.Queue()
    survived: list[str] = []
    with tempfile.TemporaryDirectory(prefix="cohortd-mutate-") as folder:
        for number in range(jobs):
            copies.put(_copy(Path(folder) / str(number)))
        with Progress(console=Console(stderr=True)) as progress, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            task = progress.add_task("mutating", total=len(chosen))
            for mutation, said in zip(chosen, pool.map(lambda each: _try(each, copies), chosen), strict=True):
                progress.advance(task)
                click.echo(
                    f"{'noticed ' if said is None else 'SURVIVED'} {mutation.name}{f' ({said})' if said else ''}"
                )
                if said is not None:
                    survived.append(mutation.name)
    click.echo(f"{len(chosen) - len(survived)} of {len(chosen)} edits noticed, {len({m.rule for m in chosen})} rules")
    sys.exit(1 if survived else 0)


def _copy(folder: Path) -> Path:
    folder.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    return folder


def _try(mutation: Mutation, copies: queue.Queue[Path]) -> str | None:
    """None when a test failed, else what happened instead."""
    copy = copies.get()
    path = copy / mutation.path
    original = path.read_text("utf-8")
    try:
        path.write_text(apply(mutation, original), "utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "--timeout", "60", "-k", "not postgres", *mutation.tests],
            cwd=copy, capture_output=True, text=True, timeout=WITHIN_S, check=False,
            env=os.environ | {"PYTHONPATH": f"{copy / 'app'}:{copy}", "CI": "1"},
        )  # fmt: skip
    finally:
        path.write_text(original, "utf-8")
        copies.put(copy)
    if done.returncode == FAILED:
        return None
    return "no test failed" if done.returncode == 0 else f"pytest ended with {done.returncode}: {done.stdout[-300:]}"


def apply(mutation: Mutation, text: str) -> str:
    """The text with the edit in it; ValueError when its place is gone, or stands more than once."""
    if text.count(mutation.old) != 1:
        raise ValueError(f"{mutation.path} holds {mutation.old!r} {text.count(mutation.old)} times, not once")
    return text.replace(mutation.old, mutation.new)


if __name__ == "__main__":
    mutate(prog_name="ops/mutate")

"""The command line of `ops/gym`: what Gym's users live through, seen with Gym's own collector and agent."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click

from gym.scenarios import REPLAYED, SCENARIOS
from gym.world import Broken, world


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, type=click.Choice([scenario.__name__ for scenario in SCENARIOS]))
@click.option(
    "--record",
    type=click.Path(path_type=Path),
    help="Folder for what Gym sent and got, where tests replay it: tests/http/recorded_gym.",
)
def gym(names: tuple[str, ...], record: Path | None) -> None:
    """Run NeMo Gym's collector and agent against the service; exit status 0 when all ends as it must.

    Example: ops/gym the_judge_is_away
    """
    broken = False
    if record is not None:
        record.mkdir(parents=True, exist_ok=True)
    for scenario in SCENARIOS:
        if names and scenario.__name__ not in names:
            continue
        with world() as found:
            try:
                click.echo(f"ok      {scenario.__name__}: {scenario(found)}")
            except (Broken, AssertionError) as what:
                broken = True
                click.echo(f"BROKEN  {scenario.__name__}: {what}")
                log = found.folder / "collector.log"
                click.echo(log.read_text()[-2000:] if log.exists() else "the collector was not started", err=True)
                continue
            if record is not None and scenario in REPLAYED:
                shutil.copy(found.file("exchanges"), record / f"{scenario.__name__}.jsonl")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    gym(prog_name="ops/gym")

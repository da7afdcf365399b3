"""The command line of `ops/bench`: JSON lines to stdout, a table to stderr."""

from __future__ import annotations

import contextlib
import datetime
import json
import platform
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from bench.scenarios import SCENARIOS, Figures, Scenario, all_right
from bench.servers import Databases
from bench.site import ROOT, Options, Site, checkout

OPEN_FILES = 65_536


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.argument("names", nargs=-1, required=True, type=click.Choice([*SCENARIOS, "all"]), metavar="SCENARIO...")
@click.option("--engine", type=click.Choice(["sqlite", "postgres"]), default="sqlite", show_default=True)
@click.option("--n", type=click.IntRange(2, 256), default=8, show_default=True, help="Members of a cohort.")
@click.option("--body-kb", type=int, default=8, show_default=True, help="Size of a request body.")
@click.option("--judge-ms", type=float, default=0.0, show_default=True, help="Time that a judge call takes.")
@click.option("--in-flight", type=int, default=64, show_default=True, help="Cohorts open at once.")
@click.option("--cohorts", type=int, help="Cohorts of a run; each scenario has a number of its own.")
@click.option("--runs", type=click.IntRange(1), default=5, show_default=True, help="Runs; the median counts.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where the database file is put.")
@click.option("--profile", type=click.Path(path_type=Path), help="Append py-spy's folded stacks to this file.")
@click.option("--compare", metavar="GIT_REV", help="Run that revision in turn with this one, and print the ratios.")
@click.option("--peer", metavar="URL", help="Measure this server instead; its judge must be the port below.")
@click.option("--peer-pid", type=int, help="The peer's process, for its CPU and memory.")
@click.option("--peer-judge-port", type=int, default=8900, show_default=True)
@click.option("--setting", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the service.")
def bench(names: tuple[str, ...], compare: str | None, settings: tuple[str, ...], **given: Any) -> None:
    """Measure the service: one JSON line for each scenario, the median of its runs, and a table at the end.

    \b
    verify   rate, CPU and release latency with many cohorts in flight
    lone     release latency with one cohort in flight
    growth   rates at 8, 64 and 512 cohorts in flight
    replay   settled rollouts sent again
    hold     memory of a waiting request, 10,000 waiting
    restart  SIGKILL in the middle of judging

    Example: ops/bench verify lone --engine postgres --runs 3
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(OPEN_FILES, hard) if hard > 0 else OPEN_FILES, hard))
    options = Options(**given, settings=dict(setting.split("=", 1) for setting in settings))
    wanted = list(SCENARIOS) if "all" in names else list(dict.fromkeys(names))
    right = True
    lines: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        databases = Databases("sqlite" if options.peer else options.engine)
        stack.callback(databases.close)
        sites = [Site("peer" if options.peer else "here", ROOT / "app", options, databases)]
        if compare:
            sites.append(Site(compare, stack.enter_context(checkout(compare)), options, databases, compare))
        for name in wanted:
            scenario = SCENARIOS[name]
            runs = _runs(scenario, sites)
            for site in sites:
                lines.append(_line(scenario, site, runs[site.label]))
                right = right and all(all_right(figures) for figures in runs[site.label])
            if compare:
                lines[-2]["ratios"] = _ratios(scenario, runs["here"], runs[compare])
            for line in lines[-len(sites) :]:
                click.echo(json.dumps(line))
    _table(lines)
    if not right:
        raise click.ClickException("a run gave rewards that are not the judge's; its figures mean nothing")


def _runs(scenario: Scenario, sites: list[Site]) -> dict[str, list[Figures]]:
    """All runs, the sites in turn, so that whatever disturbs the machine disturbs both."""
    found: dict[str, list[Figures]] = {site.label: [] for site in sites}
    for number in range(sites[0].options.runs):
        for site in sites if number % 2 == 0 else sites[::-1]:
            figures = scenario.run(site)
            found[site.label].append(figures)
            shown = ", ".join(f"{name} {figures[name]:.4g}" for name in scenario.shown if name in figures)
            print(f"{scenario.name} {site.label} run {number + 1}: {shown}", file=sys.stderr)
    return found


def _line(scenario: Scenario, site: Site, runs: list[Figures]) -> dict[str, Any]:
    options = site.options
    medians = {name: _short(statistics.median(run[name] for run in runs)) for name in runs[0]}
    return {
        "scenario": scenario.name,
        "what": site.label,
        "engine": "peer" if options.peer else options.engine,
        "n": options.n,
        "body_kb": options.body_kb,
        "judge_ms": options.judge_ms,
        "in_flight": options.in_flight,
        "cohorts": options.cohorts or scenario.cohorts,
        **medians,
        "runs": [_short(run[scenario.shown[0]]) for run in runs if scenario.shown[0] in run],
        "settings": options.settings,
        "revision": _revision(site.revision),
        "python": platform.python_version(),
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _ratios(scenario: Scenario, here: list[Figures], there: list[Figures]) -> dict[str, list[float]]:
    """This revision's figures over the other's, run by run."""
    return {
        name: [_short(mine[name] / other[name]) for mine, other in zip(here, there, strict=True) if other[name]]
        for name in scenario.shown
    }


def _revision(of: str | None) -> str:
    named = [of] if of else ["--dirty"]
    git = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=12", *named]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def _table(lines: list[dict[str, Any]]) -> None:
    table = Table(title="Medians")
    for column in ("scenario", "what", "engine", "figure", "median", "ratio"):
        table.add_column(column, justify="right" if column in ("median", "ratio") else "left")
    for line in lines:
        for name in SCENARIOS[line["scenario"]].shown:
            if name in line:
                ratios = line.get("ratios", {}).get(name)
                ratio = f"{statistics.median(ratios):.3f}" if ratios else ""
                table.add_row(line["scenario"], line["what"], line["engine"], name, f"{line[name]:.4g}", ratio)
    Console(stderr=True).print(table)


if __name__ == "__main__":
    bench(prog_name="ops/bench")

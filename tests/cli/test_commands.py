"""Every command: its help, its exit status, and what it says when it cannot (SPEC 10)."""

from __future__ import annotations

import json
import shlex
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from sqlalchemy import make_url

from cohortd.cli.main import cli
from cohortd.settings import documented
from cohortd.store import migrate
from cohortd.store.engine import Location
from tests.cli.support import Done, cohortd


def commands(group: click.Group = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with the words that lead to it."""
    yield path, group
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


ALL = dict(commands())


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_the_help_of_every_command_has_an_example_that_it_takes(path: tuple[str, ...]) -> None:
    example = " ".join((ALL[path].help or "").rpartition("Example: cohortd ")[2].split())
    words = shlex.split(example.partition(" || ")[0].partition(" > ")[0])
    assert tuple(words[: len(path)]) == path
    command: click.Command = cli
    while isinstance(command, click.Group):
        command = command.commands[words.pop(0)]
    command.make_context(command.name, words, parent=click.Context(cli))  # raises on what it does not take


def test_help_is_printed_by_a_real_process(tmp_path: Path) -> None:
    for path in (("--help",), ("-h",), ("db", "--help"), ("serve", "--help"), ("db", "upgrade", "--help")):
        done = cohortd(tmp_path, *path)
        assert (done.status, done.err) == (0, "")
        assert "Example: cohortd " in done.out
    assert cohortd(tmp_path, "--version").out.startswith("cohortd, version ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["nonsense"], ["serve", "--nonsense"], ["serve", "--port", "abc"], ["db", "downgrade"], ["db", "nonsense"],
        ["db", "upgrade", "a", "b"], ["mock-judge", "--rate", "x=1"], ["mock-judge", "--rate", "busy=x"],
        ["mock-judge", "--port", "99999"], ["mock-judge", "--latency-ms", "-1"], ["config"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_command_called_wrongly_ends_with_2_and_says_why(arguments: list[str], tmp_path: Path) -> None:
    done = cohortd(tmp_path, *arguments)
    assert done.status == 2
    assert "Usage" in done.err or "Error" in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "settings", "said"),
    [
        (["config", "show"], {"portt": "1"}, "COHORTD_PORTT is not a setting. Did you mean COHORTD_PORT?"),
        (["config", "show"], {"port": "99999"}, "port"),
        (["--config", "nowhere.toml", "config", "show"], {}, "nowhere.toml"),
        (["--config", ".", "config", "show"], {}, "The settings file . cannot be read"),
        (["db", "current"], {"database_url": "mysql://u:CANARY@h/x"}, "'mysql', which is not served"),
        (["db", "current"], {"database_url": "CANARY"}, "is not a database URL"),
        (["db", "current"], {"database_url": "sqlite://"}, "must name a file"),
        (["db", "current"], {"database_url": "sqlite:///."}, "is a folder"),
        (["db", "current"], {"database_url": "postgresql://u:CANARY@127.0.0.1:1/x"}, "ConnectionRefusedError"),
        (["db", "current"], {"database_url": "postgresql://u@h/x?password=CANARY"}, "'password' behind its `?`"),
        (["db", "current"], {"database_url": "postgresql://u:CANARY@[bad/x"}, "u:***@[bad/x failed"),
        (["db", "upgrade"], {"database_url": "sqlite:////proc/nowhere/x.db"}, "/proc/nowhere"),
        (["serve"], {"database_url": "sqlite:////proc/nowhere/x.db"}, "/proc/nowhere"),
        (["db", "upgrade", "nonsense"], {}, "'nonsense'"),
        (["db", "upgrade", "--sql", "nonsense"], {}, "'nonsense'"),
        (["db", "downgrade", "nonsense", "--yes"], {}, "'nonsense'"),
        (["serve", "--num-rollouts-per-prompt", "0"], {}, "num_rollouts_per_prompt"),
        (["serve", "--port", "-1"], {}, "port"),
    ],
)
def test_a_command_that_cannot_ends_with_1_and_names_what_is_wrong(
    arguments: list[str], settings: dict[str, str], said: str, tmp_path: Path
) -> None:
    done = cohortd(tmp_path, *arguments, **settings)
    assert (done.status, done.out) == (1, "")
    last = done.err.splitlines()[-1]
    assert last.startswith("cohortd: ")
    assert said in last
    assert "CANARY" not in done.err


@pytest.mark.parametrize("arguments", [["db", "current"], ["db", "check"], ["db", "upgrade"], ["serve"]], ids=" ".join)
def test_a_file_that_is_no_database_is_left_as_it_is(arguments: list[str], tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("These are notes, and longer than the header of a database would be. " * 4)
    before = file.read_bytes()
    done = cohortd(tmp_path, *arguments, database_url="sqlite:///notes.txt")
    assert done.status == 1
    assert "notes.txt" in done.err.splitlines()[-1]
    assert file.read_bytes() == before


def test_a_taken_port_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = cohortd(tmp_path, "serve", "--port", str(taken.getsockname()[1]))
    assert done.status == 1
    assert "in use" in done.err.splitlines()[-1]


# -- db


def test_the_way_of_a_schema_up_and_down(empty_database_url: str, tmp_path: Path) -> None:
    def db(*arguments: str, **more: Any) -> Done:
        return cohortd(tmp_path, "db", *arguments, database_url=empty_database_url, **more)

    head = migrate.head()
    assert db("current").out == "The database is empty.\n"
    assert json.loads(db("current", "--json").out) == {"revision": None, "head": head}
    empty = db("check", "--json")
    assert (empty.status, json.loads(empty.out)["ok"]) == (1, False)
    assert "cohortd db upgrade" in json.loads(empty.out)["problem"]
    assert json.loads(db("upgrade", "--json").out) == {"revision": head}
    assert db("upgrade").out == f"The schema is at {head}.\n"
    assert db("current").out == f"{head}\n"
    assert db("check").status == 0
    assert json.loads(db("check", "--json").out) == {"ok": True, "revision": head}
    declined = db("downgrade", "base", stdin="n\n")
    assert declined.status == 1
    assert db("current").out == f"{head}\n"
    assert db("downgrade", "base").status == 1  # nobody there to say yes
    assert db("downgrade", "base", "--yes").status == 0
    assert db("current").out == "The database is empty.\n"
    assert json.loads(db("downgrade", "base", "--yes", "--json").out) == {"revision": None}


@pytest.mark.parametrize("url", ["sqlite:///new.db", "postgresql://nobody@nowhere.invalid/x"])
def test_the_statements_of_an_upgrade_are_printed_and_not_run(url: str, tmp_path: Path) -> None:
    done = cohortd(tmp_path, "db", "upgrade", "--sql", database_url=url)
    assert done.status == 0
    assert "CREATE TABLE cohort " in done.out
    assert migrate.head() in done.out
    assert list(tmp_path.iterdir()) == []


def test_the_printed_statements_make_the_database_that_an_upgrade_makes(tmp_path: Path) -> None:
    printed = cohortd(tmp_path, "db", "upgrade", "--sql", database_url="sqlite:///a.db").out
    with sqlite3.connect(tmp_path / "by_hand.db") as by_hand:
        by_hand.executescript(printed)
    assert cohortd(tmp_path, "db", "upgrade", database_url="sqlite:///a.db").status == 0
    listing = "SELECT type, name, replace(sql, char(9), '    ') FROM sqlite_master ORDER BY type, name"
    with sqlite3.connect(tmp_path / "a.db") as upgraded:
        assert by_hand.execute(listing).fetchall() == upgraded.execute(listing).fetchall()
    assert cohortd(tmp_path, "db", "check", database_url="sqlite:///by_hand.db").status == 0


# -- config


def test_the_settings_in_force_are_shown_for_people_and_machines_without_secrets(tmp_path: Path) -> None:
    (tmp_path / "cohortd.toml").write_text(
        "port = 5\n[judges.genrm]\nurls = ['https://me:CANARY-url@j.internal/v1']\napi_key = 'CANARY-key'\n"
        "[profiles.default]\njudge = 'genrm'\nnum_rollouts_per_prompt = 16\n"
        "[profiles.strict]\non_unparseable = 'fail'\n[campaigns.math-v3]\nprofile = 'strict'\n"
    )
    settings = {"database_url": "postgresql+asyncpg://me:CANARY-db@db.internal/x", "lease_s": "7"}
    for_people, for_machines = (cohortd(tmp_path, "config", "show", *more, **settings) for more in ([], ["--json"]))
    assert for_people.status == for_machines.status == 0
    assert "CANARY" not in for_people.out + for_machines.out + for_people.err + for_machines.err
    shown = json.loads(for_machines.out)
    assert (shown["service"]["port"], shown["service"]["lease_s"]) == (5, 7.0)
    assert shown["service"]["database_url"] == "postgresql+asyncpg://me:***@db.internal/x"
    assert shown["judges"]["genrm"]["api_key"] == "***"
    assert shown["profiles"]["strict"]["num_rollouts_per_prompt"] == 16
    assert shown["campaigns"] == {"math-v3": "strict"}
    lines = for_people.out.splitlines()
    assert "service.port = 5" in lines
    assert "campaigns.math-v3 = 'strict'" in lines
    names = {line.partition(" = ")[0].rpartition(".")[2] for line in lines}
    assert {field.name for _, field in documented()} <= names


def test_a_url_of_postgres_says_how_to_encrypt_in_the_words_of_libpq() -> None:
    for word in ("sslmode", "ssl"):
        location = Location.parse(f"postgresql://u:p@h/d?{word}=require&host=/run/pg")
        assert make_url(location.dsn).query == {"sslmode": "require", "host": "/run/pg"}
        assert location.url.query == {"ssl": "require", "host": "/run/pg"}

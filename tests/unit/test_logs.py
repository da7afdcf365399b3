"""Log lines: one form, and nothing that an exception or its frames hold."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import subprocess
import sys
import threading
import warnings
from typing import Any, Literal

import pytest
import structlog

from cohortd.errors import DatabaseUnavailable


def fail() -> None:
    """Raise with a canary in the message, in a local variable, and in the cause."""
    prompt = "CANARY prompt"
    try:
        raise ValueError(prompt)
    except ValueError as error:
        raise DatabaseUnavailable("The database does not answer.") from error


async def lose_a_task() -> None:
    """A task whose exception nobody fetches."""

    async def work() -> None:
        raise ValueError("CANARY of a task")

    task = asyncio.create_task(work())
    await asyncio.wait([task])
    del task
    gc.collect()


class Unclosable:
    """What fails as it is collected."""

    def __del__(self) -> None:
        raise ValueError("CANARY of a finaliser")


SCRIPT = """
import sys
sys.path[:0] = {path!r}
from cohortd import logs
from tests.unit import test_logs
logs.configure("debug", {form!r})
test_logs.everything()
"""


def everything() -> None:
    """Log in every way in which this process and its libraries may."""
    try:
        fail()
    except DatabaseUnavailable as error:
        structlog.get_logger().error("failed", exc_info=error)
        structlog.get_logger().error("failed", exc_info=True)
        logging.getLogger("library").exception("failed")
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    warnings.warn("soon gone", stacklevel=1)
    asyncio.run(lose_a_task())
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    Unclosable()
    gc.collect()
    structlog.get_logger().debug("last")


def written(form: Literal["json", "console"]) -> str:
    """What a process writes that logs everything in this form."""
    script = SCRIPT.format(path=[path for path in sys.path if path], form=form)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == ""
    return done.stderr


@pytest.mark.rule("L2")
def test_every_line_is_one_object_and_shows_exceptions_by_type_and_place() -> None:
    lines: list[dict[str, Any]] = [json.loads(line) for line in written("json").splitlines()]
    assert not [line for line in lines if "CANARY" in json.dumps(line)]
    assert all({"event", "level", "timestamp"} <= line.keys() for line in lines)
    assert [line["event"] for line in lines[:4]] == ["failed"] * 3 + ["Invalid HTTP request received."]
    assert {line["event"] for line in lines} >= {
        "Task exception was never retrieved",
        "thread_failed",
        "exception_lost",
    }
    assert lines[-1]["event"] == "last"
    for line in lines[:3]:
        ours, theirs = line["exception"]
        assert (ours["type"], ours["message"]) == ("DatabaseUnavailable", "The database does not answer.")
        assert theirs["type"] == "ValueError"
        assert "message" not in theirs
        assert theirs["frames"][-1].endswith(" fail")


@pytest.mark.rule("L2")
def test_lines_for_people_hold_as_little() -> None:
    text = written("console")
    assert "CANARY" not in text
    assert "DatabaseUnavailable: The database does not answer." in text
    assert "ValueError" in text
    assert "prompt" not in text


def test_what_is_less_than_the_level_is_not_logged() -> None:
    script = (
        "import logging, structlog\nfrom cohortd import logs\nlogs.configure('error', 'json')\n"
        "for log in (structlog.get_logger(), logging.getLogger('library')):\n    log.warning('quiet')\n    log.error('loud')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert [json.loads(line)["event"] for line in done.stderr.splitlines()] == ["loud", "loud"]

"""Whoever is told that something went wrong is told what to do next (STYLE: errors name the remedy)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from ops.lib.pages import PAGES

from cohortd.cohorts.lifecycle import FAILURE_KINDS
from cohortd.errors import CODES, remedy_of

APP = Path(__file__).resolve().parents[2] / "app"


def complaints() -> Iterator[tuple[str, ast.Call]]:
    """Every call that logs a warning or an error."""
    for path in sorted(APP.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("warning", "error", "exception", "critical")
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "log"
            ):
                yield f"{path.relative_to(APP)}:{node.lineno}", node


@pytest.mark.rule("L2", "R25")
def test_every_complaint_in_the_logs_names_the_next_step() -> None:
    found = list(complaints())
    assert len(found) > 10
    assert [where for where, call in found if "next" not in {keyword.arg for keyword in call.keywords}] == []


@pytest.mark.rule("R25")
def test_every_code_and_failure_is_documented_with_cause_and_remedy() -> None:
    page = PAGES["errors.md"]()
    for name, code in CODES.items():
        assert f"| `{name}` | {code.status}" in page
        assert min(len(code.cause), len(code.remedy)) > 20
        assert code.cause.endswith(".")
        assert code.remedy.endswith(".")
    for kind in FAILURE_KINDS:
        assert remedy_of(kind) in page


@pytest.mark.rule("R22")
def test_only_what_an_identical_request_can_mend_says_when_to_try_again() -> None:
    retryable = {name for name, code in CODES.items() if code.retry_after_s is not None}
    assert retryable == {"shutting_down", "database_unavailable", "overloaded"}

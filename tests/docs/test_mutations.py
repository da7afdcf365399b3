"""The edits of `ops/mutate` still have their places in the code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from ops.lib.rules import RULES

from mutate.mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_an_edit_has_one_place_and_leaves_code_that_can_be_read(mutation: Mutation) -> None:
    text = (ROOT / mutation.path).read_text("utf-8")
    assert text.count(mutation.old) == 1
    assert ast.dump(ast.parse(text.replace(mutation.old, mutation.new))) != ast.dump(ast.parse(text))
    assert mutation.rule in RULES
    assert all((ROOT / test).exists() for test in mutation.tests)


def test_there_are_enough_of_them_for_the_rules() -> None:
    assert len(MUTATIONS) >= 40
    assert len({mutation.rule for mutation in MUTATIONS}) >= 25

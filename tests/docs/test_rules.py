"""Every rule of the contract has a test, and the ones that a database keeps have one on both engines."""

from __future__ import annotations

from ops.lib.rules import RULES, holders

# What is decided before the database or beside it: pure functions, the judge's wire, settings, access.
WITHOUT_DATABASE = {"R32", "R40", "R42", "R43", "R44", "R47", "R49", "R50", "R51"}


def test_every_rule_has_a_test() -> None:
    held = {holder.rule for holder in holders()}
    assert held <= set(RULES), "a test is marked with a rule that does not exist"
    assert set(RULES) - held == set()


def test_every_rule_that_a_database_keeps_is_held_on_both_engines() -> None:
    both = {holder.rule for holder in holders() if holder.both_engines}
    assert set(RULES) - WITHOUT_DATABASE - both == set()

"""Which tests hold which rule of the contract: read from the markers of the tests, printed as docs/rules.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).resolve().parents[2] / "tests"
# Fixtures that bring a database: a test that uses one runs on both engines.
DATABASE_FIXTURES: Final = {"engine", "database_url", "empty_database_url", "start", "service", "another_url"}

RULES: Final = {
    "L1": "every change of state is one conditional update; whoever loses reads and follows",
    "L2": "a failed cohort says why, in words without prompts or secrets",
    "L3": "all rewards in the one transaction that completes the cohort; none changes",
    "L4": "deadlines are instants of the database's clock, whoever finds them passed",
    "L5": "a process that lost its lease cannot write",
    "L6": "stopping the service fails no cohort",
    "L7": "a cohort that kills its process again and again ends as internal, the others go on",
    "R1": "explicit identity; plain names are aliases",
    "R2": "strict types of coordinates; nothing is written on 422",
    "R3": "a group id without an attempt is attempt 0",
    "R4": "the first member fixes the size",
    "R5": "the group size has no default; 1 is on purpose",
    "R6": "a group is bound to its prompt over all attempts",
    "R7": "the response digest: values count, order and spelling do not",
    "R8": "legacy identity never meets an explicit one",
    "R10": "the first accepted response of a slot is authoritative and committed",
    "R11": "the order of checks",
    "R12": "any number of identical requests share one outcome",
    "R13": "rewards belong to slots; arrival order changes nothing",
    "R14": "an attempt lower than the newest is stale, for ever",
    "R15": "a higher attempt supersedes at once",
    "R16": "a response that cannot be converted is refused, naming the place",
    "R17": "a client that disconnects only stops waiting",
    "R20": "success and replay, field by field",
    "R21": "the masked failure, field by field",
    "R22": "other failures are problem documents; Retry-After only where it helps",
    "R23": "a failed cohort answers the same for ever, without judging",
    "R24": "legacy runs: retired when completed, a fence when failed, copies answered",
    "R25": "errors are RFC 9457 problem documents with a stable code",
    "R26": "shutdown: parked requests closed within a second, verdicts in flight stored",
    "R30": "collection deadline",
    "R31": "evaluation deadline",
    "R32": "deadlines are finite, above zero, and refused by name otherwise",
    "R33": "last arrival against expiry: one disposition for all",
    "R34": "judge_present: go on without the missing",
    "R35": "same_identity: the next incarnation after a failure",
    "R36": "as_pairs_arrive: judge early, publish together",
    "R37": "unparseable answers: the neutral verdict is counted, all-defaulted members masked",
    "R38": "answers too long for the judge",
    "R40": "plans",
    "R41": "a verdict is committed as soon as it is known; a kill repeats at most the slots",
    "R42": "wire formats",
    "R43": "the history and the candidates that the judge is given",
    "R44": "reading the judge's text",
    "R45": "two budgets of tries, backoff, Retry-After, refusals",
    "R46": "a budget exhausted",
    "R47": "output token exhaustion says so",
    "R48": "one failed comparison ends the cohort; its other calls are dropped",
    "R49": "several endpoints: slots, rests, ejection, probes",
    "R50": "aggregators and shaping, Gym's bit for bit",
    "R51": "ambiguous verdicts",
    "R60": "a waiting request holds no connection and at most its compressed body",
    "R61": "limits, none of which keeps a cohort from filling",
    "R62": "access: loopback, Host and Origin",
    "R70": "retention",
    "R71": "text from outside survives exactly and is readable",
}

HEAD: Final = """# Which test holds which rule

Written by `ops/docs` from the markers of the tests; do not edit. The rules are those of the contract; a test in bold runs
on SQLite and on Postgres.

| rule | what | tests |
|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Holder:
    """A test that is marked with a rule."""

    rule: str
    file: str
    name: str
    both_engines: bool


def holders() -> Iterator[Holder]:
    """Every marked test, rule by rule."""
    for path in sorted(TESTS.rglob("test_*.py")):
        file = path.relative_to(TESTS.parent).as_posix()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
                both = any(argument.arg in DATABASE_FIXTURES for argument in node.args.args)
                for rule in _marked(node):
                    yield Holder(rule, file, node.name, both)


def _marked(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.rule":
            for argument in decorator.args:
                if isinstance(argument, ast.Constant):
                    yield str(argument.value)


def rules_page() -> str:
    """docs/rules.md: every rule with the tests that hold it."""
    found: dict[str, list[Holder]] = {rule: [] for rule in RULES}
    for holder in holders():
        found[holder.rule].append(holder)
    rows = []
    for rule, tests in found.items():
        listed = sorted({(test.file, test.name, test.both_engines) for test in tests})
        shown = [
            f"{'**' if both else ''}`{file.removeprefix('tests/')}` {_words(name)}{'**' if both else ''}"
            for file, name, both in listed
        ]
        rows.append(f"| {rule} | {RULES[rule]} | {'<br>'.join(shown)} |")
    return HEAD + "\n".join(rows) + "\n"


def _words(name: str) -> str:
    return name.removeprefix("test_").replace("_", " ")

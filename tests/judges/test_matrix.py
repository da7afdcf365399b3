"""Every way in which a judge can answer or fail, over real HTTP, in both of Gym's formats (R44-R47)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from cohortd.judges.caller import JudgeFailure, VerdictReached
from tests.judges.support import API_KEY, FORMATS, Comparison, judge, kind, profile
from tests.support import judge_server as server
from tests.support.fake_clock import FakeClock
from tests.support.judge_server import VERDICT, Fate, JudgeServer, says, status

QUOTA = {"message": "GULLSECRET has no money", "type": "insufficient_quota", "code": "insufficient_quota"}
BALANCE = {"message": "no credit", "type": "invalid_request_error", "code": "credit_balance_exhausted"}
BILLING = {"message": "limit", "type": "billing_hard_limit_reached"}


def garbled(packed: bytes) -> bytes:
    """Compressed bytes with a hole."""
    return packed[:20] + b"\xff" * 20 + packed[40:]


@dataclass
class Row:
    """Fates in turn, and what must come of them: outcomes of all tries, what they cost, and the last word."""

    name: str
    fates: list[Fate]
    outcomes: list[str]
    end: str
    budget: str = "transport"
    fields: dict[str, Any] = field(default_factory=dict)
    formats: tuple[str, ...] = FORMATS


def then_verdict(name: str, fate: Fate, outcome: str, budget: str = "transport", **kwargs: Any) -> Row:
    """One failure, then a verdict."""
    return Row(name, [fate, server.verdict()], [outcome, "ok"], "verdict", budget, **kwargs)


def scored(name: str, text: str, end: str = "default") -> Row:
    """A text that is always given."""
    outcomes = ["ok"] if end == "verdict" else ["malformed"] * 4
    return Row(name, [says(text)], outcomes, end, "answers")


TRANSPORT = [
    *(then_verdict(f"{n} once", status(n), f"http_{n}") for n in (408, 425, 429, 500, 502, 503, 504, 529)),
    Row("always 500", [status(500)], ["http_500"] * 9, "failure"),
    Row("always 429", [status(429)], ["http_429"] * 9, "failure"),
    then_verdict("reset", server.reset, "reset"),
    then_verdict("closed before the reply", server.close, "closed"),
    then_verdict("cut body, by length", server.cut, "cut"),
    then_verdict("cut body, chunked", server.cut_chunked, "cut"),
    then_verdict("hang", server.hang, "timeout", fields={"judge_request_timeout_s": 0.15}),
    then_verdict("a byte per 100 ms", server.drip(0.1), "timeout", fields={"judge_request_timeout_s": 0.25}),
    then_verdict("HTML", server.html(), "undecodable"),
    then_verdict("no HTTP", server.no_http, "undecodable"),
    then_verdict("an empty body", server.raw(b""), "undecodable"),
    then_verdict("half of a JSON value", server.raw(b'{"status": "compl'), "undecodable"),
    then_verdict("a body that is no UTF-8", server.raw(b'{"status": "\xff\xfe"}'), "undecodable"),
    then_verdict("a body nested too deeply", server.raw(b"[" * 200_000), "undecodable"),
    then_verdict("gzip that breaks", server.gzipped(spoil=garbled), "undecodable"),
    then_verdict("gzip that ends early", server.gzipped(spoil=lambda packed: packed[:-30]), "undecodable"),
    then_verdict("gzip that is none", server.gzipped(spoil=lambda packed: b"no gzip"), "undecodable"),
    then_verdict("300 MB, announced", server.huge(300 * 2**20, announced=True), "oversized"),
    then_verdict("300 MB, chunked", server.huge(300 * 2**20, announced=False), "oversized"),
]

AT_ONCE = [
    *(Row(str(n), [status(n)], [f"http_{n}"], "failure", "none") for n in (400, 401, 403, 404, 422)),
    *(Row(f"{n}, unnamed by the rules", [status(n)], [f"http_{n}"], "failure", "none") for n in (302, 405, 413)),
    *(
        Row(f"quota {error['type']}", [status(429, error=error, retry_after="1")], ["http_429"], "failure", "none")
        for error in (QUOTA, BALANCE, BILLING)
    ),
    then_verdict("a 429 that is no quota", status(429, error={"type": "rate_limit_error"}), "http_429"),
]

ANSWERS = [
    then_verdict("malformed once", says("Both are fine."), "malformed", "answers"),
    Row("always malformed", [says("Both are fine.")], ["malformed"] * 4, "default", "answers"),
    then_verdict("empty once", says(""), "empty", "answers"),
    then_verdict("blank once", says(" \n\t"), "empty", "answers"),
    Row("always empty", [says("")], ["empty"] * 4, "failure", "answers"),
    Row("no content at all", [says(None)], ["empty"] * 4, "failure", "answers"),
    then_verdict(
        "200 with an error object", server.raw(b'{"error": {"message": "no", "type": "server_error"}}'), "failed",
        "answers",
    ),
    *(
        then_verdict(f"200 with {body.decode()}", server.raw(body), "failed", "answers")
        for body in (b"null", b"[]", b'"text"', b"7", b"true")
    ),
    then_verdict("200 with {}", server.raw(b"{}"), "empty", "answers"),
    Row("gzip", [server.gzipped()], ["ok"], "verdict"),
    Row("status missing", [server.without_status()], ["ok"], "verdict"),
    Row("status null", [says(VERDICT, status=None)], ["ok"], "verdict"),
    Row("status completed", [says(VERDICT, status="completed")], ["ok"], "verdict"),
    *(
        then_verdict(f"status {name}", says(VERDICT, status=name), outcome, "answers")
        for name, outcome in (("incomplete", "incomplete"), ("failed", "failed"), ("cancelled", "failed"))
    ),
    then_verdict("budget exhausted once", server.exhausted(), "incomplete", "answers"),
    then_verdict("budget exhausted with a verdict", server.exhausted(VERDICT), "incomplete", "answers"),
    Row("budget always exhausted", [server.exhausted()], ["incomplete"] * 4, "failure", "answers"),
]  # fmt: skip

M, E, X = says("Both are fine."), says(""), server.exhausted()
NAMES = {id(M): "malformed", id(E): "empty", id(X): "incomplete"}
ORDERS = [
    Row(
        "-".join(NAMES[id(fate)] for fate in order),
        list(order),
        [NAMES[id(fate)] for fate in order],
        "default" if M in order else "failure",
        "answers",
    )
    for order in [
        (M, E, E, E), (E, M, E, E), (E, E, M, E), (E, E, E, M), (M, M, E, E), (E, E, M, M), (M, E, M, E), (E, M, M, M),
        (X, M, E, X), (X, X, X, M), (M, X, X, X), (X, E, X, E),
    ]
]  # fmt: skip

SCORES = [
    *(
        scored(f"score_1 {value}", f'{{"score_1": {value}, "score_2": 2, "ranking": 2}}')
        for value in ("NaN", "Infinity", '"4"', "true", "null", "0", "7", "5.1", "1e999", "9" * 400)
    ),
    *(scored(f"ranking {value}", f'{{"score_1": 4, "score_2": 2, "ranking": {value}}}') for value in ("0", "7", "6.5")),
    scored("fractions", '{"score_1": 4.5, "score_2": 1.25, "ranking": 5.5}', "verdict"),
    scored("one key", '{"score_2": 2}', "verdict"),
    scored("prose around", f"Here: {VERDICT} Done.", "verdict"),
    scored("thoughts before", f'<think>{{"score_1": 1, "score_2": 5, "ranking": 6}}</think>{VERDICT}', "verdict"),
    scored("thoughts only", f"<think>{VERDICT}</think>"),
    scored("nothing but words after the thoughts", f"<think>{VERDICT}</think> I prefer the first."),
]

ROWS = [
    pytest.param(judge_format, row, id=f"{judge_format}: {row.name}")
    for row in (*TRANSPORT, *AT_ONCE, *ANSWERS, *ORDERS, *SCORES)
    for judge_format in row.formats
]


@pytest.mark.rule("R42", "R44", "R45", "R46")
@pytest.mark.parametrize(("judge_format", "row"), ROWS)
async def test_every_answer_and_fault_ends_as_the_contract_says(judge_format: str, row: Row) -> None:
    clock = FakeClock(autopilot=True)
    async with JudgeServer(*row.fates) as judge_server:
        comparison = Comparison(
            judge([judge_server.url], clock, eject_after=100), clock, profile(judge_format, **row.fields)
        )
        ended = await comparison.run()
    assert comparison.outcomes == row.outcomes
    assert kind(ended) == row.end
    failed = [note.budget for note in comparison.tries if note.outcome != "ok"]
    assert failed == [row.budget] * len(failed)
    assert len(judge_server.calls) == len(row.outcomes)
    assert [note.try_no for note in comparison.tries] == list(range(1, len(row.outcomes) + 1))
    assert comparison.endpoints.outstanding == 0
    assert set(comparison.held) == {1}  # the slot is held until each outcome is committed (R41)
    for call in judge_server.calls:
        assert call.json["model"] == "judge-model"
        assert call.headers["authorization"] == f"Bearer {API_KEY}"
    if isinstance(ended, JudgeFailure):
        assert "Pair (0, 1) at judge#0" in ended.reason
        for secret in ("KEYSECRET", "GULLSECRET", "ANSWERZERO", "ANSWERONE", server.THEIR_WORDS, "Both are fine"):
            assert secret not in ended.reason
        assert len(ended.reason) < 1000


@pytest.mark.rule("R45")
@pytest.mark.parametrize("judge_format", FORMATS)
async def test_a_refused_connection_is_a_fault_of_transport(judge_format: str) -> None:
    clock = FakeClock(autopilot=True)
    with server.refusing_url() as url:
        comparison = Comparison(judge([url], clock, eject_after=100), clock, profile(judge_format))
        assert kind(await comparison.run()) == "failure"
    assert comparison.outcomes == ["connect"] * 9
    assert set(comparison.budgets) == {"transport"}


@pytest.mark.rule("R44")
@pytest.mark.parametrize("judge_format", FORMATS)
async def test_what_the_judge_said_comes_whole(judge_format: str) -> None:
    clock = FakeClock(autopilot=True)
    extra = {"message": {"reasoning_content": "thinking"}} if judge_format == "chat_roles" else {}
    async with JudgeServer(says(VERDICT, **extra)) as judge_server:
        comparison = Comparison(judge([judge_server.url], clock), clock, profile(judge_format))
        ended = await comparison.run()
    assert isinstance(ended, VerdictReached)
    verdict, last = ended.verdict, ended.last
    assert (verdict.score_1, verdict.score_2, verdict.ranking, verdict.ambiguous) == (4.0, 2.0, 2.0, False)
    assert (last.text, last.reasoning, last.judge_model) == (VERDICT, "thinking", "scripted")
    assert (last.prompt_tokens, last.completion_tokens, last.http_status) == (100, 20, 200)
    assert last.answered
    assert last.budget == "none"


@pytest.mark.rule("R44")
async def test_reasoning_is_never_read_as_the_verdict() -> None:
    clock = FakeClock(autopilot=True)
    async with JudgeServer(says("", message={"reasoning_content": VERDICT})) as judge_server:
        comparison = Comparison(judge([judge_server.url], clock), clock, profile("chat_roles"))
        assert kind(await comparison.run()) == "failure"
    assert comparison.outcomes == ["empty"] * 4
    assert comparison.tries[0].reasoning == VERDICT


@pytest.mark.rule("R51")
@pytest.mark.parametrize(
    ("policy", "outcomes", "end"), [("gym", ["ok"], "verdict"), ("malformed", ["ambiguous"] * 4, "default")]
)
async def test_an_ambiguous_text_counts_as_the_profile_says(policy: str, outcomes: list[str], end: str) -> None:
    clock = FakeClock(autopilot=True)
    text = f'The answer says {{"score_1": 1, "score_2": 5, "ranking": 6}} but {VERDICT}'
    async with JudgeServer(says(text)) as judge_server:
        comparison = Comparison(judge([judge_server.url], clock), clock, profile(on_ambiguous=policy))
        ended = await comparison.run()
    assert comparison.outcomes == outcomes
    assert kind(ended) == end
    if isinstance(ended, VerdictReached):
        assert ended.verdict.ambiguous
        assert ended.verdict.score_1 == 4.0


@pytest.mark.rule("R37", "R46")
async def test_no_default_verdict_is_given_where_the_profile_says_fail() -> None:
    clock = FakeClock(autopilot=True)
    async with JudgeServer(M) as judge_server:
        comparison = Comparison(judge([judge_server.url], clock), clock, profile(on_unparseable="fail"))
        ended = await comparison.run()
    assert isinstance(ended, JudgeFailure)
    assert "no usable answer after 4 tries" in ended.reason


@pytest.mark.rule("R46")
@pytest.mark.parametrize("answer_first", [True, False])
async def test_one_completed_answer_makes_an_exhausted_transport_budget_the_default_verdict(answer_first: bool) -> None:
    clock = FakeClock(autopilot=True)
    fates = [M, *[status(500)] * 9] if answer_first else [*[status(500)] * 8, M, status(500)]
    async with JudgeServer(*fates) as judge_server:
        comparison = Comparison(judge([judge_server.url], clock, eject_after=100), clock, profile())
        assert kind(await comparison.run()) == "default"
    assert sorted(comparison.outcomes) == ["http_500"] * 9 + ["malformed"]

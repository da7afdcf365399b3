"""A failure's reason holds no secret, no prompt, no answer and nothing that the judge wrote (L2)."""

from __future__ import annotations

import pytest

from cohortd.judges.caller import JudgeFailure
from cohortd.judges.config import JudgeConfig
from cohortd.judges.reasons import showable
from tests.judges.support import API_KEY, Comparison, judge, profile
from tests.support.fake_clock import FakeClock
from tests.support.judge_server import JudgeServer, status

CONFIG = JudgeConfig("judge", ("http://user:URLSECRET@judge.test/v1",), API_KEY)
BODY = b'{"metadata": {"response_1": "Paris", "response_2": "server_error"}}'


@pytest.mark.rule("L2")
@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("model_not_found", True),
        ("BadRequestError", True),
        ("context.length", True),
        ("4096", True),
        ("server_error", True),  # a common word, whatever the prompt says
        ("Paris", False),  # an answer
        ("response_1", False),
        (API_KEY, False),
        (f"x{API_KEY}x", False),
        ("SECRET", False),  # a part of the key
        ("URLSECRET", False),
        ("user", False),
        ("two words", False),
        ("x" * 65, False),
        ("sk-12-34", False),
        ("a\nb", False),
        ("", False),
        (None, False),
    ],
)
def test_only_identifiers_that_are_nobody_s_text_are_shown(word: str | None, shown: bool) -> None:
    assert showable(word, CONFIG, BODY) == (word if shown else None)


@pytest.mark.rule("L2")
@pytest.mark.parametrize("number", [400, 401, 429, 500])
async def test_a_judge_that_quotes_everything_is_quoted_nowhere(number: int) -> None:
    clock = FakeClock(autopilot=True)
    quoted = "KEYSECRET GULLSECRET ANSWERZERO"
    error = {"message": quoted, "type": "ANSWERZERO", "code": API_KEY, "param": quoted}
    async with JudgeServer(status(number, error=error)) as server:
        url = server.url.replace("//", "//user:URLSECRET@")
        comparison = Comparison(judge([url], clock, eject_after=100), clock, profile())
        ended = await comparison.run()
    assert isinstance(ended, JudgeFailure)
    for secret in (*quoted.split(), "URLSECRET"):
        assert secret not in ended.reason
        assert secret not in ended.last.endpoint
    assert f"HTTP {number}" in ended.reason
    assert ended.last.message == quoted  # the judge's own words stay with the try


@pytest.mark.rule("L2", "R42")
async def test_a_long_message_is_kept_in_part() -> None:
    clock = FakeClock(autopilot=True)
    async with JudgeServer(status(400, error={"message": "m" * 10_000})) as server:
        comparison = Comparison(judge([server.url], clock), clock, profile())
        ended = await comparison.run()
    assert ended.last.message == "m" * 2000

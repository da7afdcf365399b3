"""Texts out of requests: the conversation for the judge, the rollout's answer, and how texts are shown (R38, R43, R71)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cohortd.errors import Refused

TEXT_PARTS: Final = ("input_text", "output_text", "text")
NO_ANSWER: Final = "None"
_CUT_MARK: Final = "\n[... {cut} characters left out ...]\n"
_UNREADABLE: Final = re.compile("[\x00\ud800-\udfff]")


class Message(msgspec.Struct, frozen=True):
    """One turn of the conversation as the judge is given it."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a rollout wrote: its answer, which the judge compares, and its reasoning, which only shaping looks at."""

    answer: str
    reasoning: str


def history(input_value: Any) -> list[Message]:
    """The conversation in a request's `input`: messages with their whole text; other items and parts are dropped.

    Junk is tolerated, never refused: a message without a usable role is the user's.
    """
    if isinstance(input_value, str):
        return [Message("user", input_value)]
    if not isinstance(input_value, list):
        return []
    return [
        Message(_role(item.get("role")), _joined(item.get("content"), TEXT_PARTS))
        for item in input_value
        if isinstance(item, dict) and item.get("type", "message") in ("message", None)
    ]


def _role(role: Any) -> str:
    return role if isinstance(role, str) and role.strip() else "user"


def _joined(content: Any, kinds: tuple[str, ...]) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, (int, float)) and not isinstance(content, bool):
        return str(content)
    if not isinstance(content, list):
        return ""
    return "".join(
        part["text"]
        for part in content
        if isinstance(part, dict) and part.get("type") in kinds and isinstance(part.get("text"), str)
    )


def candidate(response: Any) -> Candidate:
    """The answer and reasoning in a response; `invalid_response` names the place that cannot be read (R16)."""
    if not isinstance(response, dict):
        raise Refused("invalid_response", "`response` must be an object.")
    output = response.get("output", [])
    if not isinstance(output, list):
        raise Refused("invalid_response", "`response.output` must be a list.")
    answer: list[str] = []
    reasoning: list[str] = []
    for at, item in enumerate(output):
        if not isinstance(item, dict):
            continue
        if item.get("type") == "message":
            content = item.get("content")
            if isinstance(content, str):
                answer.append(content)
            elif isinstance(content, list):
                _collect(answer, content, "output_text", f"response.output[{at}].content")
        elif item.get("type") == "reasoning" and isinstance(item.get("summary"), list):
            _collect(reasoning, item["summary"], None, f"response.output[{at}].summary")
    return Candidate("".join(answer), "".join(reasoning))


def _collect(texts: list[str], parts: list[Any], kind: str | None, where: str) -> None:
    for at, part in enumerate(parts):
        if not isinstance(part, dict) or (kind is not None and part.get("type") != kind):
            continue
        text = part.get("text", "")
        if isinstance(text, str):
            texts.append(text)
        elif kind is not None:
            raise Refused("invalid_response", f"`{where}[{at}].text` must be a string.")


def shown(answer: str) -> str:
    """The answer as the judge is shown it: a blank one stands as `None`."""
    return answer if answer.strip() else NO_ANSWER


def cut_middle(text: str, max_chars: int) -> tuple[str, bool]:
    """(text of at most `max_chars`, whether its middle was left out) (R38)."""
    if len(text) <= max_chars:
        return text, False
    room = max_chars - len(_CUT_MARK.format(cut=len(text)))
    if room < 2:
        return text[:max_chars], True
    head, tail = room - room // 2, room // 2
    return text[:head] + _CUT_MARK.format(cut=len(text) - room) + text[len(text) - tail :], True


def readable(text: str) -> tuple[str, bool]:
    """(text that every engine stores and prints, whether NUL or lone surrogates were escaped) (R71)."""
    if text.isascii() and "\x00" not in text:
        return text, False
    if _UNREADABLE.search(text) is None:
        return text, False
    return _UNREADABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text), True

"""Why a comparison failed, in our words: no secret, no prompt, no answer, nothing that the judge wrote (L2, R46, R47)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote, urlsplit

from cohortd.judges.config import JudgeConfig
from cohortd.judges.tries import PairJob, TryRecord

# Types and codes of errors as servers spell them. Anything else in those fields could be text of the judge's.
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,63}|[0-9]{1,6}")
_IN_DATABASE: Final = "The judge's own message is in judge_call."


def no_answer(job: PairJob, note: TryRecord, known: str, exhausted: int, answered: bool) -> str:
    """The tries are used up without a verdict; answers cut off by the token limit say so, and what to do (R47)."""
    if exhausted:
        return (
            f"{known}: {exhausted} of {note.try_no} tries exhausted "
            f"max_output_tokens={job.profile.judge_max_output_tokens} without a verdict. "
            "Raise COHORTD_JUDGE_MAX_OUTPUT_TOKENS, or constrain the judge's reasoning."
        )
    if answered:
        return (
            f"{known}: no usable answer after {note.try_no} tries. Its answers are in judge_call; check the judge's "
            "model and format, or set on_unparseable=default_verdict."
        )
    return f"{known}: no completed answer after {note.try_no} tries. Check that the judge is up. {_IN_DATABASE}"


def request_refused(known: str) -> str:
    """The judge does not take the request itself: no other try would fare better."""
    return (
        f"{known}: the judge refuses the request. Check its format, model and context length "
        f"(max_answer_chars limits what it is shown). {_IN_DATABASE}"
    )


def judge_refused(known: str) -> str:
    """Key, path, model or quota are wrong."""
    return f"{known}: check the judge's key, URL, model and quota. {_IN_DATABASE}"


def where(job: PairJob, note: TryRecord, safe: Sequence[str | None]) -> str:
    """Pair, endpoint, try and status; `safe` are the error's type and code as far as they may be shown."""
    words = [f"Pair {job.pair} at {note.endpoint}, try {note.try_no}"]
    words.append(note.outcome if note.http_status in (None, 200) else f"HTTP {note.http_status}")
    words += [f"{name} {value}" for name, value in zip(("type", "code"), safe, strict=True) if value]
    return ", ".join(words)


def showable(word: str | None, config: JudgeConfig, body: bytes) -> str | None:
    """The word if it is an identifier that was neither in what the judge was sent nor in its secrets, else None."""
    if word is None or _IDENTIFIER.fullmatch(word) is None:
        return None
    if any(word in secret or secret in word for secret in _secrets(config)):
        return None
    return word if word.encode() not in body or word in _COMMON else None


def _secrets(config: JudgeConfig) -> list[str]:
    found = [config.api_key or ""]
    for url in config.urls:
        parts = urlsplit(url)
        found += [unquote(parts.username or ""), unquote(parts.password or "")]
    return [secret for secret in found if secret]


# Words that say the same whether or not a prompt holds them too.
_COMMON: Final = frozenset(
    {
        "api_error", "authentication_error", "bad_request_error", "BadRequestError", "billing_hard_limit_reached",
        "context_length_exceeded", "credit_balance_exhausted", "insufficient_quota", "internal_error",
        "internal_server_error", "InternalServerError", "invalid_api_key", "invalid_request_error", "model_not_found",
        "not_found_error", "NotFoundError", "overloaded_error", "permission_error", "rate_limit_error",
        "rate_limit_exceeded", "server_error", "service_unavailable", "timeout_error",
    }
)  # fmt: skip

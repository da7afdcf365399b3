"""Structured logs: one line for each event, to standard error, without prompts, answers or secrets.

Exceptions are shown by type and place. Their messages are left out unless they are ours: those of libraries quote what
was being worked on (a failing row, a value that cannot be encoded), and local variables hold requests and keys.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

import structlog
from structlog.typing import EventDict, Processor

from cohortd.errors import CohortdError

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure(level: Literal["debug", "info", "warning", "error"], form: Literal["json", "console"]) -> None:
    """Log from this level on, for machines or for people; what libraries log takes the same form."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _show_exception,
    ]
    last: Processor = structlog.processors.JSONRenderer()
    if form == "console":
        shared.append(_exception_as_text)
        last = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[*shared, last],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, _first_line, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, last],
        )
    )
    logging.basicConfig(level=max(logging.WARNING, LEVELS[level]), handlers=[handler], force=True)
    logging.captureWarnings(True)
    threading.excepthook = _of_a_thread
    sys.unraisablehook = _unraisable


def _of_a_thread(lost: threading.ExceptHookArgs) -> None:
    structlog.get_logger().error("thread_failed", exc_info=lost.exc_value)


def _unraisable(lost: Any) -> None:
    structlog.get_logger().error("exception_lost", exc_info=lost.exc_value)


def _first_line(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """What asyncio says of a lost task goes on with the whole future, its exception's message included."""
    event["event"] = str(event["event"]).partition("\n")[0]
    return event


def _show_exception(_logger: Any, _method: str, event: EventDict) -> EventDict:
    error = event.pop("exc_info", None)
    if error is True:
        error = sys.exc_info()
    if isinstance(error, tuple):
        error = error[1]
    if isinstance(error, BaseException):
        event["exception"] = list(_chain(error))
    return event


def _exception_as_text(_logger: Any, _method: str, event: EventDict) -> EventDict:
    if "exception" in event:
        event["exception"] = _as_text(event["exception"])
    return event


def shown(error: BaseException) -> str:
    """The exception and what it came from, by type and place, for people."""
    return _as_text(_chain(error))


def _as_text(chain: Iterable[dict[str, Any]]) -> str:
    return "\n".join("\n  ".join([f"{e['type']}: {e.get('message', '')}", *e["frames"]]) for e in chain)


def _chain(error: BaseException) -> Iterator[dict[str, Any]]:
    """The exception and what it came from, the outermost first."""
    seen: set[int] = set()
    left: list[BaseException] = [error]
    while left:
        found = left.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        shown: dict[str, Any] = {"type": type(found).__name__}
        if isinstance(found, CohortdError):
            shown["message"] = str(found)
        shown["frames"] = [
            f"{frame.f_code.co_filename}:{line} {frame.f_code.co_name}"
            for frame, line in traceback.walk_tb(found.__traceback__)
        ]
        yield shown
        left += found.exceptions if isinstance(found, BaseExceptionGroup) else ()
        cause = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
        left += [cause] if cause is not None else []

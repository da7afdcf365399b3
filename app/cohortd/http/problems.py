"""Refusals as RFC 9457 problem documents: a stable code, what is wrong, what to do next."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException

from cohortd.errors import CODES, DatabaseUnavailable, Refused
from cohortd.http.body import Disconnected

log = structlog.get_logger()

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:cohortd:problem:"


def problem(code: str, detail: str, *, allow: str | None = None, **members: Any) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body) of the problem document of a code."""
    meaning = CODES[code]
    document = {
        "type": TYPE_PREFIX + code,
        "title": meaning.title,
        "status": meaning.status,
        "detail": f"{detail} {meaning.remedy}" if meaning.remedy not in detail else detail,
        "code": code,
        **members,
    }
    headers = {"content-type": MEDIA_TYPE}
    if meaning.retry_after_s is not None:
        headers["retry-after"] = str(math.ceil(meaning.retry_after_s))
    if code == "method_not_allowed" and allow is not None:
        headers["allow"] = allow
    if code == "unauthorized":
        headers["www-authenticate"] = 'Bearer realm="cohortd"'
    return meaning.status, headers, msgspec.json.encode(document)


def refusal_of(error: BaseException) -> Refused:
    """The refusal that an exception amounts to; what nobody foresaw is logged and says nothing of itself."""
    match error:
        case Refused():
            return error
        case DatabaseUnavailable():
            return Refused("database_unavailable", "The database does not answer.")
        case Disconnected():
            return Refused("invalid_request", "The client left before its body was whole.")
        case NotFoundException():
            return Refused("not_found", "There is nothing at this path.")
        case MethodNotAllowedException():
            return Refused("method_not_allowed", "The path does not take this method.")
        case HTTPException(status_code=413):
            return Refused("body_too_large", "The body is too large.")
        case HTTPException(status_code=status) if 400 <= status < 500:
            return Refused("invalid_request", "The request cannot be read.")
    log.error(
        "request_failed", error=type(error).__name__, next="this is a fault of ours: report it with its trace",
        exc_info=error,
    )  # fmt: skip
    return Refused("internal", "The request failed inside cohortd.")


def handle(_request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Litestar's exception handler."""
    refusal = refusal_of(error)
    status, headers, body = problem(refusal.code, refusal.detail)
    if isinstance(error, MethodNotAllowedException) and error.headers:
        headers |= {name.lower(): value for name, value in error.headers.items()}
    return Response(body, status_code=status, headers=headers, media_type=MEDIA_TYPE)

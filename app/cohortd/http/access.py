"""Who may ask what: the one place that every route passes (R62)."""

from __future__ import annotations

import contextlib
import ipaddress

from litestar.types import Scope

from cohortd.cohorts.identity import campaign_name
from cohortd.errors import Refused
from cohortd.http.state import HttpState

CAMPAIGN = "cohortd.campaign"  # the scope's campaign, where the path names one (http.front)
DEFAULT_CAMPAIGN = "default"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def header(scope: Scope, name: bytes) -> str | None:
    """A request header, or None."""
    for key, value in scope["headers"]:
        if key == name:
            return value.decode("latin-1")
    return None


def content_length(scope: Scope) -> int | None:
    """The declared length of the body, or None."""
    text = header(scope, b"content-length")
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _method(scope: Scope) -> str:
    return str(scope.get("method", ""))


def check(scope: Scope, state: HttpState, *, method: str | None = None) -> str:
    """The campaign that the request is for; refused when host, origin, method or media type may not be served."""
    if method is not None and _method(scope) != method:
        raise Refused("method_not_allowed", f"This path takes {method}.")
    _check_host(scope, state)
    if _method(scope) not in ("GET", "HEAD", "OPTIONS"):
        _check_origin(scope, state)
        media_type = (header(scope, b"content-type") or "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise Refused("unsupported_media_type", "The body must be sent as application/json.")
    campaign: str | None = scope.get(CAMPAIGN)  # type: ignore[assignment]
    return campaign_name(campaign) if campaign is not None else DEFAULT_CAMPAIGN


def _check_host(scope: Scope, state: HttpState) -> None:
    """A page that resolves its own name to this address must not be able to read from a local service."""
    hosts = [value for key, value in scope["headers"] if key == b"host"]
    name = _host_name(hosts[0].decode("latin-1")) if len(hosts) == 1 else ""
    if name not in LOOPBACK and not _is_allowed(name, state):
        raise Refused("forbidden", f"The Host header {name[:100]!r} is not served; add it to COHORTD_ALLOWED_HOSTS.")


def _check_origin(scope: Scope, state: HttpState) -> None:
    """A page of another site must not be able to write, whatever name it reaches this service by."""
    origin = header(scope, b"origin")
    if origin is not None and origin.partition("://")[2].lower() != (header(scope, b"host") or "").lower():
        raise Refused("forbidden", "A web page of another origin may not change anything here.")


def _is_allowed(name: str, state: HttpState) -> bool:
    allowed = state.settings.service.allowed_hosts
    if "*" in allowed or name in allowed:
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(name).is_loopback
    return False


def _host_name(host: str) -> str:
    """The host without its port; of what has brackets, only an address with nothing but a port behind it."""
    if host.startswith("["):
        address, closed, port = host[1:].partition("]")
        return address.lower() if closed and (not port or port.startswith(":")) else host.lower()
    return host.rpartition(":")[0].lower() if host.count(":") == 1 else host.lower()

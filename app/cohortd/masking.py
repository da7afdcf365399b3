"""Secrets out of what is shown: URLs keep what says where they lead, and nothing that opens a door."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

HIDDEN: Final = "***"
_SHOWN_PARAMETERS: Final = ("host", "port", "ssl", "sslmode")


def masked_url(url: str) -> str:
    """The URL with its password masked, or its user if there is no password, and every parameter that may be one."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return HIDDEN  # no URL at all: nobody knows what it is
    where, question, query = rest.partition("?")
    credentials, at, host = where.rpartition("@")
    user, colon, _ = credentials.partition(":")
    shown = f"{scheme}://{user if colon else HIDDEN}{colon and colon + HIDDEN}@{host}" if at else f"{scheme}://{host}"
    parameters = [
        f"{name}={value if name in _SHOWN_PARAMETERS else HIDDEN}"
        for name, value in parse_qsl(query, keep_blank_values=True)
    ]
    return shown + question + "&".join(parameters)

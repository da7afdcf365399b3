"""Named places where a test may stop the process to kill it; without COHORTD_FAILPOINTS they do not exist.

`COHORTD_FAILPOINTS=after_claim` stops at the first hit, `after_claim@3` at the third. A stopped process has printed
`failpoint: NAME` and blocks for ever: the test sends the signal.
"""

from __future__ import annotations

import os
import threading
from typing import Final


def _parse(text: str) -> dict[str, int]:
    wanted = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, hits = entry.partition("@")
        wanted[name] = int(hits or 1)
    return wanted


_WANTED: Final = _parse(os.environ.get("COHORTD_FAILPOINTS", ""))


def _stop(name: str) -> None:
    if name in _WANTED:
        _WANTED[name] -= 1
        if _WANTED[name] == 0:
            print(f"failpoint: {name}", flush=True)
            threading.Event().wait()


def _pass(name: str) -> None:
    """No failpoint is wanted."""


failpoint = _stop if _WANTED else _pass

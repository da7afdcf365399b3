"""What a process is told about a judge: where it is and how hard it may be asked. Nothing of it is frozen with cohorts."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class JudgeConfig:
    """A judge by its name; URLs end in `/v1`. The key never shows in a repr."""

    name: str
    urls: tuple[str, ...]
    api_key: str | None = field(default=None, repr=False)
    concurrency: int = 256  # calls in flight at each endpoint
    eject_after: int = 3  # connection failures in a row that take an endpoint out
    max_response_bytes: int = 8 * 2**20

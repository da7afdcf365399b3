"""Services that end with their test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import NO_JUDGE, Start
from tests.support.processes import Service


@pytest.fixture
def start(empty_database_url: str, tmp_path: Path) -> Iterator[Start]:
    """Start the service with settings; what was started is killed at the end."""
    started: list[Service] = []

    def _start(**settings: Any) -> Service:
        url = settings.pop("database_url", empty_database_url)
        service = Service(tmp_path, url, settings.pop("judge_url", NO_JUDGE), **settings)
        started.append(service)
        return service

    yield _start
    for service in started:
        service.kill()

"""The pages that are written from the code say what the code says."""

from __future__ import annotations

import pytest
from ops.lib.pages import DOCS, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_current(name: str) -> None:
    assert (DOCS / name).read_text("utf-8") == PAGES[name](), f"docs/{name} has fallen behind; run ops/docs"


def test_every_setting_says_what_it_means() -> None:
    rows = [line.split(" | ") for line in PAGES["settings.md"]().splitlines() if line.startswith("| `COHORTD_")]
    assert len(rows) > 50
    assert len({row[0] for row in rows}) == len(rows)
    assert all(len(row[-1].removesuffix(" |").strip()) > 10 for row in rows)

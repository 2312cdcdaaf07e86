"""The page on the demo, and README, show the runs that are kept in docs/data."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.study.write import written

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["docs/demo.md", "README.md"])
def test_a_pages_tables_are_those_of_the_kept_runs(page: str) -> None:
    assert (ROOT / page).read_text() == written(ROOT)[page]

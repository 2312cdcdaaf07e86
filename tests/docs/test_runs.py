"""The pages on the demo, on recipes and on the study, and README, show the runs that are kept beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.study.write import written

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["docs/study.md", "docs/demo.md", "README.md"])
def test_a_pages_tables_are_those_of_the_kept_runs(page: str) -> None:
    assert (ROOT / page).read_text() == written(ROOT)[page]

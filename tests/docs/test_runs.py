"""The pages on recipes and on the study show the runs that are kept beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.study.write import written

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["study.md", "recipes.md"])
def test_a_pages_tables_are_those_of_the_kept_runs(page: str) -> None:
    assert (DOCS / page).read_text() == written(DOCS)[page]

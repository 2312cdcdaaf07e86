"""Files and names that the pages mention exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs").glob("*/*.md"))]
PLACES = (
    "",
    "src/afterwit",
    "plugins/atropos/src",
    "plugins/hosts/src",
    "src/afterwit/objective",
    "benchmarks",
)
"""The folders to which a page's names of files are relative: the root, or the folder that it is about."""


def files(page: Path) -> set[str]:
    """Python files that it names, files of tests among them, and folders of the package."""
    text = page.read_text(encoding="utf-8")
    folders = re.findall(r"`(src/afterwit/[a-z_/]+)`", text)
    return {*re.findall(r"`((?:[a-z_]+/)*[a-z_0-9]+\.py)`", text), *folders}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    missing = {name for name in files(page) if not any((ROOT / place / name).exists() for place in PLACES)}
    assert not missing


def test_every_page_that_the_readme_links_to_is_there() -> None:
    """Links between pages are checked as the site is built."""
    linked = re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(linked) > 10
    assert not {name for name in linked if not (ROOT / name).exists()}


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    listed = re.findall(r": (\S+\.md)", navigation)
    docs = ROOT / "docs"
    assert sorted(listed) == sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md"))

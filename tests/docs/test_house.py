"""The page of the source tree names every folder and module, and each once."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "house.md").read_text(encoding="utf-8")
SOURCE = ROOT / "src" / "afterwit"


def names(heading: str) -> list[str]:
    """The names in the first column of a section's table."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_the_page_has_each_folder_once() -> None:
    folders = [f"{folder.name}/" for folder in SOURCE.iterdir() if (folder / "__init__.py").exists()]
    assert sorted(names("Folders")) == sorted(folders)


def test_the_page_has_each_shared_module_once() -> None:
    modules = [file.name for file in SOURCE.glob("*.py") if not file.name.startswith("__")]
    assert sorted(names("Shared modules")) == sorted(modules)

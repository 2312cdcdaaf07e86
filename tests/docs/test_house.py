"""The map of the house names every room, and each once."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "house.md").read_text(encoding="utf-8")
HOUSE = ROOT / "src" / "afterwit"


def names(heading: str) -> list[str]:
    """What the first column of a section's table names."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_the_map_has_each_room_once() -> None:
    rooms = [f"{folder.name}/" for folder in HOUSE.iterdir() if (folder / "__init__.py").exists()]
    assert sorted(names("The rooms")) == sorted(rooms)


def test_the_map_has_each_module_at_the_top_once() -> None:
    modules = [file.name for file in HOUSE.glob("*.py") if not file.name.startswith("__")]
    assert sorted(names("The nouns")) == sorted(modules)

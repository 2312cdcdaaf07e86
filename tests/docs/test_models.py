"""The page on models names every convention."""

from __future__ import annotations

from pathlib import Path

from afterwit.chat_format.families import CONVENTIONS

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def test_every_convention_has_its_row() -> None:
    rows = [
        line.split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")
    ]
    shown = {cell for row in rows for cell in row[1:2]}
    assert [one.name for one in CONVENTIONS if f"`{one.name}`" not in shown] == []

"""The settings page is what the code declares."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import fields

from afterwit.config import HOME_VARIABLE, PREFIX, Settings, known_names
from docs.settings import PAGE, page


def test_the_settings_page_is_fresh() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make settings`"


def test_every_setting_is_on_the_page_with_its_reason() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| `") and line.count(" | ") == 2]
    sections = [info.annotation for info in Settings.model_fields.values()]
    kinds = [kind for kind in sections if isinstance(kind, type) and dataclasses.is_dataclass(kind)]
    assert {row.split("`")[1] for row in rows} >= {field.name for kind in kinds for field in fields(kind)}
    assert [row for row in rows if row.endswith("|  |")] == []


def test_a_variable_of_afterwits_that_a_page_names_is_a_setting() -> None:
    """`afterwit` refuses any other, also one that a page has another program read."""
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGE.parent.glob("*.md"))
    names = {name.removeprefix(PREFIX) for name in re.findall(rf"\b{PREFIX}[A-Z_]+", pages)}
    settings = {name.replace(".", "__").upper() for name in known_names()}
    assert {"JUDGE__VOTES"} <= names <= {HOME_VARIABLE.removeprefix(PREFIX), *settings}

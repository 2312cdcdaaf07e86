"""The algorithm page states the defaults that the code has."""

import re
from dataclasses import fields
from pathlib import Path

from afterwit.objective import ObjectiveSettings

PAGE = Path(__file__).parents[2] / "docs" / "algorithm.md"


def stated():
    """Setting -> default as the page's table of settings has them."""
    section = PAGE.read_text().split("## Settings")[1].split("## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")][2:]
    found = {}
    for _, names, defaults in rows:
        found |= zip(re.findall("`(.*?)`", names), re.findall("`(.*?)`", defaults), strict=True)
    return found


def test_every_setting_is_on_the_page_with_its_default():
    assert stated() == {field.name: str(field.default) for field in fields(ObjectiveSettings)}

"""The tables of days on the page are those that are computed."""

from __future__ import annotations

import pytest

from experiments.day import tables as days


def test_the_page_has_the_tables_that_the_command_writes() -> None:
    text = days.PAGE.read_text(encoding="utf-8")
    assert days.page(text) == text


@pytest.mark.parametrize(
    ("number", "said"), [(2e6, "2 MB"), (9.4e9, "9.4 GB"), (3.77e11, "377 GB"), (2.8e12, "2.8 TB")]
)
def test_bytes_are_said_in_their_unit(number: float, said: str) -> None:
    assert days._bytes(number) == said

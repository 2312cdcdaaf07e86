"""The page for those who come from OpenClaw-RL: what it names exists, with the values it gives."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from afterwit import recipes
from afterwit.cli.app import app
from afterwit.config import known_names, load

PAGE = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text(encoding="utf-8")
NO_SETTING = "-"


def rows() -> list[tuple[str, str, str]]:
    """The three cells of every row that maps something."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    mapped = [row for row in cells if len(row) == 3 and row != ["theirs", "ours", "remarks"]]
    return [(theirs, ours, remarks) for theirs, ours, remarks in mapped if not theirs.startswith("---")]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def named(cell: str) -> list[str]:
    """Settings named in a cell, with or without a value: `section.name` or `section.name=value`."""
    return [part for part in code(cell) if re.match(r"[a-z_]+\.(?!json\b|toml\b)[a-z_0-9]+(=|\Z)", part)]


def test_every_line_of_the_tables_has_three_cells() -> None:
    tables = re.findall(r"(?m)^\| theirs \| ours \| remarks \|\n\| --- \| --- \| --- \|\n((?:\|.*\n)+)", PAGE)
    assert sum(table.count("\n") for table in tables) == len(rows()) > 100


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_every_setting_it_names_exists(row: tuple[str, str, str]) -> None:
    ours = [part.partition("=")[0] for part in code(row[1])]
    also = [part.partition("=")[0] for part in named(row[2])]
    assert set(ours + also) <= set(known_names())


def test_every_value_it_gives_is_one_that_the_setting_takes(tmp_path: Path) -> None:
    for part in [part for row in rows() for cell in row[1:] for part in named(cell) if "=" in part]:
        section, _, name = part.partition("=")[0].partition(".")
        given = load(home=tmp_path, pairs=[part], environment={})
        written = part.partition("=")[2]
        got = getattr(getattr(given, section), name)
        assert (str(got) == written) or not isinstance(got, str), part


def test_a_row_without_a_setting_says_so_by_a_dash() -> None:
    assert [row for row in rows() if not code(row[1]) and row[1] != NO_SETTING] == []


def test_nothing_of_theirs_is_mapped_twice() -> None:
    variables = [
        part for theirs, _, _ in rows() for part in code(theirs) if re.fullmatch(r"OPENCLAW_\w+", part)
    ]
    assert [name for name, times in Counter(variables).items() if times > 1] == []


def test_every_command_it_shows_is_one_of_ours() -> None:
    ours = {
        command.name or command.callback.__name__ for command in app.registered_commands if command.callback
    }
    ours |= {group.name for group in app.registered_groups if group.name}
    shown = set(re.findall(r"`afterwit ([a-z]+)", PAGE))
    assert shown <= ours


def test_every_recipe_it_names_takes_the_settings_given_with_it(tmp_path: Path) -> None:
    commands = re.findall(r"`([^`]*--recipe [^`]*)`", PAGE)
    for command in commands:
        words = command.split()
        after = [(word, words[at + 1]) for at, word in enumerate(words) if word in ("--recipe", "--set")]
        pairs = [value for option, value in after if option == "--set"]
        load(home=tmp_path, recipe=dict(after)["--recipe"], pairs=pairs, environment={})
    assert set(re.findall(r"--recipe ([a-z-]+)", PAGE)) == set(recipes.names())

"""Every command that a page shows works as it is typed in a clone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from afterwit.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PLACEHOLDERS = {"N": "3", "S": "3", "TURN": "last", "SESSION": "last"}
"""A placeholder on the pages, and a value that the command takes in its place."""
COMMAND = get_command(app)


def block_lines(page: Path) -> Iterator[str]:
    """The commands in a page's code blocks, without their comments."""
    for block in re.findall(r"(?ms)^```(?:sh|console)?\n(.*?)^```", page.read_text(encoding="utf-8")):
        for line in block.splitlines():
            words = line.partition(" #")[0].strip()
            if words and not words.startswith("#"):
                yield words


def inline(page: Path) -> Iterator[str]:
    """The `afterwit` commands in a page's sentences."""
    yield from re.findall(r"`(afterwit [a-z][^`]*)`", page.read_text(encoding="utf-8"))


def parse(arguments: list[str]) -> None:
    """Parse a command line as the program does, without running it. Raises a UsageError."""
    command, context = COMMAND, COMMAND.make_context("afterwit", list(arguments))
    while hasattr(command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        if not rest and command.invoke_without_command:
            return
        name, command, left = command.resolve_command(context, rest)
        context = command.make_context(name, list(left), parent=context)


def parse_mention(arguments: list[str]) -> None:
    """As `parse`, but a sentence may name a command without its arguments."""
    try:
        parse(arguments)
    except Exception as error:
        if "MissingParameter" not in type(error).__name__:
            raise


def words_of(line: str) -> list[str]:
    return [PLACEHOLDERS.get(word, word) for word in shlex.split(line)[1:]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_afterwit_command_of_a_page_parses(page: Path) -> None:
    for line in block_lines(page):
        if line.startswith("./afterwit "):
            parse(words_of(line))
    for line in inline(page):
        parse_mention(words_of(line))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_command_in_a_block_needs_nothing_activated(page: Path) -> None:
    bare = [line for line in block_lines(page) if re.match(r"(afterwit|python3? -m (?!venv)|pytest)\b", line)]
    assert bare == [], "write ./afterwit or .venv/bin/python"


def test_every_make_target_that_a_page_names_is_there() -> None:
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8")))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        named = {line.split()[1] for line in block_lines(page) if line.startswith("make ")}
        assert named | set(re.findall(r"`make ([a-z-]+)", text)) <= targets, page


def every_command() -> Iterator[str]:
    """`serve`, `keys add`, and all others."""
    for name, command in COMMAND.commands.items():
        inner = getattr(command, "commands", None)
        yield from [name] if inner is None else [f"{name} {each}" for each in inner]


def test_every_command_is_shown_on_a_page() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [name for name in every_command() if not re.search(rf"afterwit {name}\b", pages)] == []


def test_a_command_that_does_not_exist_is_noticed() -> None:
    parse(["keys", "add", "laptop", "--scope", "chat"])
    for wrong in (["serv"], ["serve", "--modle", "x"], ["rollback", "three"], ["keys", "make"]):
        with pytest.raises(Exception, match=r"No such|valid"):
            parse(wrong)


def test_the_command_of_a_clone_installs_before_it_runs() -> None:
    script = ROOT / "afterwit"
    assert script.stat().st_mode & 0o111
    text = script.read_text(encoding="utf-8")
    assert ".venv/.installed-demo" in text
    assert "$(VENV)/.installed-demo:" in (ROOT / "Makefile").read_text(encoding="utf-8")

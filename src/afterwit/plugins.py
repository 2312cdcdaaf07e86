"""Parts that other packages add by entry points, found by group and name.

A package declares a part in its own pyproject.toml, for example

    [project.entry-points."afterwit.commands"]
    mine = "my_package.command:app"

and it is there as soon as the package is installed. `docs/extend.md` shows each group with an example.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from afterwit.errors import SettingError

COMMANDS = "afterwit.commands"
"""`typer.Typer` groups: `afterwit NAME ...`. `--help` loads them: commands import inside."""
SECTIONS = "afterwit.settings"
"""Frozen data classes: the section `[NAME]` of config.toml."""
BATCHES = "afterwit.batches"
"""`BatchSource`s of `afterwit.running.train`: `afterwit train --from NAME`."""
DIALECTS = "afterwit.dialects"
"""`Dialect`s, each at its own path."""
JUDGES = "afterwit.judges"
"""Functions of `JudgeSettings` that return a `JudgeClient`: `judge.client = NAME`."""
OBJECTIVES = "afterwit.objectives"
"""`Objective`s: `objective.objective = NAME`."""
TERMS = "afterwit.terms"
"""`Term`s that objectives name."""
HINT_RULES = "afterwit.hint_rules"
"""`HintRule`s: `objective.hint_selection = NAME`."""
ENGINES = "afterwit.engines"
"""`EngineKind`s: `engine.kind = NAME`."""
STORES = "afterwit.stores"
"""`StoreKind`s, by the scheme of `store.url`."""

T = TypeVar("T")


class Table(Mapping[str, T]):
    """The values of a setting by name: those that come with Afterwit, then those of installed packages, which
    are loaded when they are read."""

    def __init__(self, group: str, built_in: Mapping[str, T]) -> None:
        self._group, self._built_in = group, built_in

    def __getitem__(self, name: str) -> T:
        if name in self._built_in:
            return self._built_in[name]
        if name not in installed(self._group):
            raise KeyError(name)
        part: T = loaded(installed(self._group)[name])
        return part

    def __iter__(self) -> Iterator[str]:
        yield from self._built_in
        yield from (name for name in installed(self._group) if name not in self._built_in)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@cache
def installed(group: str) -> Mapping[str, EntryPoint]:
    """The parts of a group by name, not loaded, in the order of their names."""
    return {each.name: each for each in sorted(entry_points(group=group))}


def load(group: str, name: str) -> Any:
    """One part. Raises SettingError if there is none of that name, or if its package cannot be imported."""
    found = installed(group).get(name)
    if found is None:
        near = difflib.get_close_matches(name, installed(group), n=1)
        known = f"did you mean {near[0]}?" if near else f"installed: {', '.join(installed(group)) or 'none'}"
        raise SettingError(f"no installed package provides {name} ({group}); {known}")
    return loaded(found)


def loaded(part: EntryPoint) -> Any:
    """The object that an entry point names. Raises SettingError if it cannot be imported."""
    try:
        return part.load()
    except Exception as error:  # a foreign package may raise anything
        package = part.dist.name if part.dist is not None else part.module
        raise SettingError(
            f"{package} provides {part.name} ({part.group}) but fails to load: update or uninstall it: "
            f"{type(error).__name__}: {error}"
        ) from error

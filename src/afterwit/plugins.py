"""Parts that other packages add by entry points, found by group and name.

A package declares a part in its own pyproject.toml, for example

    [project.entry-points."afterwit.commands"]
    mine = "my_package.command:app"

and it is there as soon as the package is installed. `docs/extend.md` shows each group with an example.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
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
    """The parts of a group by name: those that come with Afterwit, then those of installed packages, which
    are loaded when they are read. A part that cannot be used raises SettingError, which names its package."""

    def __init__(
        self,
        group: str,
        kind: Any,
        built_in: Mapping[str, T] = {},
        check: Callable[[str, T], object] = lambda name, part: None,
    ) -> None:
        """`kind` is the parts' class; `check` raises for a part that cannot have its name."""
        self.group, self._kind, self._built_in, self._check = group, kind, built_in, check

    def __getitem__(self, name: str) -> T:
        if name in self._built_in:
            return self._built_in[name]
        if name not in self:
            raise KeyError(name)
        return self.loaded(name)

    def __contains__(self, name: object) -> bool:
        return name in self._built_in or name in installed(self.group)

    def __iter__(self) -> Iterator[str]:
        yield from self._built_in
        yield from (name for name in installed(self.group) if name not in self._built_in)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def usable(self) -> dict[str, T]:
        """All parts but those that cannot be used: they concern only who names them."""
        found: dict[str, T] = {}
        for name in self:
            with suppress(SettingError):
                found[name] = self[name]
        return found

    def loaded(self, name: str) -> T:
        """The part that a package adds under this name. SettingError if there is none that can be used."""
        found = installed(self.group)
        if name not in found:
            near = difflib.get_close_matches(name, found, n=1)
            known = f"did you mean {near[0]}?" if near else f"installed: {', '.join(found) or 'none'}"
            raise SettingError(f"no installed package provides {name} ({self.group}); {known}")
        own, *others = found[name]
        provides = f"{package(own)} provides {name} ({self.group})"
        if others:
            raise SettingError(f"{provides}, and so does {package(others[0])}: uninstall one of them")
        if name in self._built_in:
            raise SettingError(f"{provides}, a name of Afterwit's own: update or uninstall it")
        try:
            part: T = own.load()
            if not isinstance(part, self._kind):
                raise TypeError(f"{own.value} is no {self._kind.__name__}")
            self._check(name, part)
        except (Exception, SystemExit) as error:  # a foreign package may raise anything
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise SettingError(f"{provides} but fails to load: update or uninstall it: {why}") from error
        return part


def installed(group: str) -> Mapping[str, Sequence[EntryPoint]]:
    """The parts of a group by name, not loaded, in the order of their names: several if packages disagree."""
    return _installed(group, tuple(sys.path))


@cache
def _installed(group: str, path: Sequence[str]) -> Mapping[str, Sequence[EntryPoint]]:
    found: dict[str, list[EntryPoint]] = {}
    for part in sorted(_declared(path).select(group=group)):
        found.setdefault(part.name, []).append(part)
    return found


@cache
def _declared(path: Sequence[str]) -> Any:
    """The parts of every package on this path, which are read once for all groups."""
    return entry_points()


def package(part: EntryPoint) -> str:
    """The name of the package that declares a part."""
    return part.module if part.dist is None else part.dist.name

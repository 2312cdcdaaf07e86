"""Sources of settings: they are read and merged, and each knows where a setting is written."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from afterwit.core.errors import SettingError

PREFIX = "AFTERWIT_"
Tree = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsSource:
    """One source of settings."""

    tree: Tree
    written: Callable[[Sequence[str]], str]
    """Where the key at a path is written in this source, for people."""

    def place(self, path: Sequence[str]) -> str | None:
        """Where the key at `path` is written; None if this source does not hold it."""
        node: Any = self.tree
        for key in path:
            if not isinstance(node, Mapping) or key not in node:
                return None
            node = node[key]
        return self.written(path)


def merged(sources: Sequence[SettingsSource]) -> Tree:
    """One tree of all sources; the first source that has a key wins."""
    result: Tree = {}
    for source in reversed(sources):
        _overlay(result, source.tree)
    return result


def file_source(path: Path) -> SettingsSource:
    """A TOML file's settings. SettingError if it is not valid TOML."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path} is not valid TOML: {error}") from error
    return SettingsSource(tree=tree, written=partial(_in_file, path))


def named_source(tree: Tree, name: str) -> SettingsSource:
    """Settings that come with the package: a recipe's, or the demo's."""
    return SettingsSource(tree=tree, written=lambda _: f"in {name}")


def environment_source(environment: Mapping[str, str], *, apart: frozenset[str]) -> SettingsSource:
    """The environment's settings, without names in `apart`: AFTERWIT_JUDGE__VOTES=5 is judge.votes = 5."""
    tree: Tree = {}
    for name, value in environment.items():
        if name.startswith(PREFIX) and name not in apart:
            assign(tree, name.removeprefix(PREFIX).lower().split("__"), _value(value))
    return SettingsSource(tree=tree, written=_in_environment)


def flag_source(pairs: Sequence[str], direct: Mapping[str, Any]) -> SettingsSource:
    """`--set judge.votes=5` and the flags of their own (`direct`, dotted names; None: not given)."""
    tree: Tree = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise SettingError(f"--set {pair}: write it as section.name=value, for example judge.votes=5")
        assign(tree, name.strip().split("."), _value(value.strip()))
    for name, value in direct.items():
        if value is not None:
            assign(tree, name.split("."), value)
    return SettingsSource(tree=tree, written=lambda _: "on the command line")


def assign(tree: Tree, path: Sequence[str], value: Any) -> None:
    """Put `value` at `path` and make the tables above it."""
    for key in path[:-1]:
        inner = tree.setdefault(key, {})
        if not isinstance(inner, dict):
            raise SettingError(f"{'.'.join(path)}: {key} is a value, not a section")
        tree = inner
    tree[path[-1]] = value


def _value(text: str) -> Any:
    """The text itself, which the settings' types read; a list is parsed as JSON."""
    if not text.startswith("["):
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise SettingError(f"{text}: a list is written as JSON, for example [0.9, 0.98]") from error


def _overlay(below: Tree, above: Mapping[str, Any]) -> None:
    for key, value in above.items():
        if isinstance(value, Mapping) and isinstance(below.get(key), dict):
            _overlay(below[key], value)
        else:
            below[key] = dict(value) if isinstance(value, Mapping) else value


def _in_environment(keys: Sequence[str]) -> str:
    return f"in the environment ({PREFIX}{'__'.join(keys).upper()})"


def _in_file(path: Path, keys: Sequence[str]) -> str:
    line = _line_of(path, keys)
    return f"in {path}" + (f", line {line}" if line else "")


def _line_of(path: Path, keys: Sequence[str]) -> int | None:
    wanted_table, wanted_key = ".".join(keys[:-1]), keys[-1]
    for number, table, key in _keys_of(path):
        if (table, key) in ((wanted_table, wanted_key), (".".join(keys), "")):
            return number
    return None


def _keys_of(path: Path) -> Iterator[tuple[int, str, str]]:
    table = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip()
        if text.startswith("["):
            table = text.strip("[] ")
            yield number, table, ""
        elif "=" in text and not text.startswith("#"):
            yield number, table, text.partition("=")[0].strip().strip("\"'")

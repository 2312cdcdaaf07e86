"""`python -m docs.settings` writes settings.md from the settings' own declarations."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import typing
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from afterwit.config import settings_class

PAGE = Path(__file__).with_name("settings.md")
HEAD = """\
# Settings

<!-- Written by `make settings` from the code. Change the declarations, not this page. -->

Settings come from four places. The later one wins: a recipe (`--recipe`), the file `config.toml` in the home
folder (or the file of `--config`), the environment, the flags.

| written in | example |
| --- | --- |
| the file | `[judge]` and below it `votes = 5` |
| the environment | `AFTERWIT_JUDGE__VOTES=5` |
| a flag | `--set judge.votes=5` |

The home folder is `--home`, else `AFTERWIT_HOME`, else the platform's folder for user data.

`model` belongs to no section: a Hugging Face model folder or a hub id. The home remembers the last one.
"""


def page() -> str:
    """The whole page."""
    return "\n\n".join([HEAD.rstrip(), *_tables()]) + "\n"


def _tables() -> Iterator[str]:
    for section, info in settings_class().model_fields.items():
        one_of = typing.get_args(info.annotation)
        earlier: dict[str, str] = {}
        for kind in (info.annotation, *one_of):
            if isinstance(kind, type) and dataclasses.is_dataclass(kind):
                name = f'`[{section}]` with `kind = "{kind().kind}"`' if kind in one_of else f"`[{section}]`"
                rows = {setting: row for setting, row in _rows(kind) if setting != "kind"}
                yield _table(name, kind, rows, earlier)
                earlier |= dict.fromkeys(rows.values(), name)


def _table(name: str, kind: type, rows: Mapping[str, str], earlier: Mapping[str, str]) -> str:
    """A section's table. Rows that a table above has too are named in one sentence."""
    same = {setting: earlier[row] for setting, row in rows.items() if row in earlier}
    names = ", ".join(f"`{setting}`" for setting in same)
    also = "".join(f" As in {above}: {names}." for above in dict.fromkeys(same.values()))
    return "\n".join(
        [
            f"## {name}\n\n{inspect.getdoc(kind)}{also}\n",
            "| setting | default | meaning |",
            "| --- | --- | --- |",
            *(row for setting, row in rows.items() if setting not in same),
        ]
    )


def _rows(kind: type) -> Iterator[tuple[str, str]]:
    notes, tables = _notes(kind), getattr(kind, "TABLES", {})
    for field in dataclasses.fields(kind):
        note = notes.get(field.name, "")
        note += _choices(tables, field.name, note)
        yield field.name, f"| `{field.name}` | {_default(field)} | {note} |"


def _choices(tables: Mapping[str, Iterable[str]], name: str, note: str) -> str:
    """The names in the setting's table, unless the note has them all."""
    choices = [f"`{choice}`" for choice in tables.get(name, ())]
    return "" if all(choice in note for choice in choices) else f" One of {', '.join(choices)}."


def _default(field: dataclasses.Field[typing.Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return "unset" if field.default is None else f"`{_written(field.default)}`"
    assert field.default_factory is not dataclasses.MISSING
    return f"`{_written(field.default_factory())}`"


def _written(value: object) -> str:
    """A value as TOML writes it."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value!s}"'
        case tuple() | list():
            return f"[{', '.join(map(_written, value))}]"
    return str(value)


def _notes(kind: type) -> dict[str, str]:
    """The string below each field, including those of the classes that it extends."""
    (declaration,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(declaration, ast.ClassDef)
    notes = {
        name: note for base in kind.__bases__ if base is not object for name, note in _notes(base).items()
    }
    for field, note in pairwise(declaration.body):
        match field, note:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                notes[name] = " ".join(text.split()).replace("|", "\\|")
    return notes


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

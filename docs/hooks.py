"""MkDocs hook: the settings page is written from the settings' own declarations."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from itertools import pairwise
from typing import Any

MARK = "<!-- settings -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the mark by one table a section."""
    return markdown.replace(MARK, _tables()) if MARK in markdown else markdown


def _tables() -> str:
    from afterwit.apps.config import Settings

    parts = []
    for name, info in Settings.model_fields.items():
        if dataclasses.is_dataclass(info.annotation):
            parts.append(_table(name, info.annotation))
    return "\n\n".join(parts)


def _table(section: str, kind: type) -> str:
    notes = _notes(kind)
    rows = [
        f"## `[{section}]`\n\n{inspect.getdoc(kind)}\n",
        "| setting | default | what and why |",
        "| --- | --- | --- |",
    ]
    for field in dataclasses.fields(kind):
        default = field.default if field.default is not dataclasses.MISSING else field.default_factory()
        rows.append(f"| `{field.name}` | `{default!r}` | {notes.get(field.name, '')} |")
    return "\n".join(rows)


def _notes(kind: type) -> dict[str, str]:
    """The string beneath each field."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body
    notes = {}
    for field, note in pairwise(body):
        match field, note:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                notes[name] = " ".join(text.split()).replace("|", "\\|")
    return notes

"""MkDocs hook: the settings page is written from the settings' own declarations."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
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
    for field, note in zip(body, body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(note, ast.Expr)
            and isinstance(note.value, ast.Constant)
        ):
            notes[field.target.id] = " ".join(str(note.value.value).split()).replace("|", "\\|")
    return notes

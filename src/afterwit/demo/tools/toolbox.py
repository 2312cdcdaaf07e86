"""The tools' effects on a workspace, and their answers."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from afterwit.sandbox.box import Ran
from afterwit.sandbox.workspace import Workspace

_ON_A_FILE = ("read", "edit", "copy", "delete")
"""Tools that need an existing file."""
Runner = Callable[[Sequence[str]], Ran]


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbox:
    """The tools over one workspace."""

    workspace: Workspace
    runner: Runner
    """Runs a command in the workspace."""

    def call(self, name: str, arguments: str) -> str:
        """The tool's real answer. A mistake in the call is answered in words and never raises."""
        try:
            given = json.loads(arguments)
            return self._act(name, given if isinstance(given, Mapping) else {}).strip()
        except KeyError as missing:
            return f"failed: {name} needs {missing}"
        except (OSError, ValueError) as error:
            return f"failed: {error}"

    def _act(self, name: str, given: Mapping[str, Any]) -> str:
        files = self.workspace
        if name in _ON_A_FILE and not files.exists(_text(given, "path")):
            return f"there is no {_text(given, 'path')}"
        match name:
            case "read":
                return files.read(_text(given, "path"))
            case "edit":
                files.edit(_text(given, "path"), _text(given, "old"), _text(given, "new"))
                return f"edited {given['path']}"
            case "write":
                files.write(_text(given, "path"), _text(given, "text"))
                return f"saved {given['path']}"
            case "copy":
                files.copy(_text(given, "path"), _text(given, "to"))
                return f"copied {given['path']}"
            case "delete":
                return self._delete(_text(given, "path"), dry_run=given.get("dry_run") is True)
            case "run":
                return self._run(shlex.split(_text(given, "command")))
        return f"failed: no tool {name}"

    def _delete(self, path: str, *, dry_run: bool) -> str:
        if dry_run:
            return f"would delete {path}"
        self.workspace.delete(path)
        return f"deleted {path}"

    def _run(self, argv: Sequence[str]) -> str:
        ended = self.runner(argv)
        printed = ended.output.strip()
        if ended.ended_for is not None:
            return f"failed: out of {ended.ended_for}\n{printed}".strip()
        return (
            printed or "ok" if ended.status == 0 else f"failed: exit status {ended.status}\n{printed}".strip()
        )


def _text(given: Mapping[str, Any], key: str) -> str:
    value = given[key]
    if not isinstance(value, str):
        raise ValueError(f"{key} must be a string")
    return value

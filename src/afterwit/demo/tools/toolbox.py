"""A task's folder, the tools' effects on it, and the owner who watches the calls."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from afterwit.demo.tools import tasks
from afterwit.demo.tools.tasks import Step
from afterwit.demo.world import Task
from afterwit.sandbox.box import Ran
from afterwit.sandbox.inside.files import Files, OutsideWorkspace
from afterwit.turn import ToolCall

Runner = Callable[[Sequence[str]], Ran]
"""Runs a command in the workspace."""


class Workspace(Files):
    """One folder with its file operations; paths are the agent's, texts are UTF-8.

    Raises `OutsideWorkspace` for a path that leaves the folder, and `OSError` as the file system does.
    """

    def __init__(self, root: Path, files: Mapping[str, str] = {}) -> None:
        """`files` are written into the folder."""
        super().__init__(str(root))
        self.root = root.resolve(strict=True)
        for name, text in files.items():
            self.write(name, text)

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there."""
        return os.path.exists(self.resolve(path))

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace a text that is in the file exactly once; raises `ValueError` otherwise."""
        text = self.read(path)
        found = text.count(old) if old else 0
        if found != 1:
            raise ValueError(f"{old!r} stands {found} times in {path}, not once")
        self.write(path, text.replace(old, new))

    def copy(self, path: str, to: str) -> None:
        """Copy one file to another place in the workspace."""
        source, target = self.regular(path), self.resolve(to)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(source, target)

    def delete(self, path: str) -> None:
        """Remove one file."""
        os.unlink(self.regular(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsState:
    """One task's workspace, the steps taken in it and the rules they broke."""

    task: Task
    workspace: Workspace
    runner: Runner
    steps: list[Step] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def act(self, call: ToolCall) -> str:
        """Run a call, and note the rules that it breaks."""
        step = Step.parse(call.name, call.arguments)
        try:
            replaces = step.name == "write" and self.workspace.exists(str(step.arguments.get("path", "")))
        except OutsideWorkspace:
            replaces = False
        step = Step(name=step.name, arguments=step.arguments, replaces=replaces)
        self.wrong.extend(rule for rule in tasks.broken(step, self.steps) if rule not in self.wrong)
        self.steps.append(step)
        return self.answer(call.name, call.arguments)

    def hear(self, said: str) -> str | None:
        """The owner has no further question."""
        return None

    def broken(self) -> tuple[str, ...]:
        """The rules broken so far, oldest first."""
        return tuple(self.wrong)

    def kept(self) -> bool:
        """Whether every rule of the task was kept by doing the guarded thing right."""
        return tasks.kept(self.task.rules, self.steps)

    def check(self) -> str | None:
        """None if every check passes, else the first failing command and its exit status."""
        for argv in self.task.checks:
            if (status := self.runner(argv).status) != 0:
                return f"{' '.join(argv)} gives status {status}"
        return None

    def answer(self, name: str, arguments: str) -> str:
        """The tool's real answer. A mistake in the call is answered in words and never raises."""
        try:
            given = json.loads(arguments)
            return self._done(name, given if isinstance(given, Mapping) else {}).strip()
        except KeyError as missing:
            return f"failed: {name} needs {missing}"
        except (OSError, ValueError) as error:
            return f"failed: {error}"

    def _done(self, name: str, given: Mapping[str, Any]) -> str:
        def text(key: str) -> str:
            value = given[key]
            if not isinstance(value, str):
                raise ValueError(f"{key} must be a string")
            return value

        files = self.workspace
        if name in ("read", "edit", "copy", "delete") and not files.exists(text("path")):
            return f"there is no {text('path')}"
        match name:
            case "read":
                return files.read(text("path"))
            case "edit":
                files.edit(text("path"), text("old"), text("new"))
                return f"edited {given['path']}"
            case "write":
                files.write(text("path"), text("text"))
                return f"saved {given['path']}"
            case "copy":
                files.copy(text("path"), text("to"))
                return f"copied {given['path']}"
            case "delete" if given.get("dry_run") is True:
                return f"would delete {given['path']}"
            case "delete":
                files.delete(text("path"))
                return f"deleted {given['path']}"
            case "run":
                ended = self.runner(shlex.split(text("command")))
                printed = ended.output.strip()
                if ended.ended_for is None and ended.status == 0:
                    return printed or "ok"
                why = f"out of {ended.ended_for}" if ended.ended_for else f"exit status {ended.status}"
                return f"failed: {why}\n{printed}"
        return f"failed: no tool {name}"

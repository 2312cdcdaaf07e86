"""The tools world: a task's folder, the tools' effects on it, and an owner with house rules who watches."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from afterwit.demo.judge import APPROVING, RuleJudge
from afterwit.demo.tools import tasks
from afterwit.demo.tools.tasks import ToolStep
from afterwit.demo.words import Split
from afterwit.demo.world import Task, World
from afterwit.turn import ToolCall

SYSTEM = "You work in /work."


def _tool(name: str, **parameters: str) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    schema = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOOLS = (
    _tool("read", path="string"),
    _tool("edit", path="string", old="string", new="string"),
    _tool("write", path="string", text="string"),
    _tool("copy", path="string", to="string"),
    _tool("delete", path="string", dry_run="boolean"),
    _tool("run", command="string"),
)
_BREAKS = {rule: (tool,) for rule, tool in tasks.GUARDED.items()} | {
    "relative": ("edit", "delete", "write", "run", "read", "copy")
}
"""By rule, the tools whose call could break it."""
SEEN_AS = "/work"
"""The folder's name for the agent."""
_SCRIPT = re.compile(r'open\("([a-z][a-z-]*\.out)", "w"\)\.write\("([A-Za-z ]*)"\)\n')
_NAME = re.compile(r"[a-z][a-z-]*\.[a-z]+")


class Ran(NamedTuple):
    """How a command ended."""

    status: int
    output: str = ""


class OutsideWorkspace(ValueError):
    """A path that ends outside the working folder."""


class Workspace:
    """One folder with its file operations; paths are the agent's, texts are UTF-8.

    Raises `OutsideWorkspace` for a path that leaves the folder, and `OSError` as the file system does.
    """

    def __init__(self, root: Path, files: Mapping[str, str] = {}) -> None:
        """`files` are written into the folder."""
        self.root = root.resolve(strict=True)
        for name, text in files.items():
            self.write(name, text)

    def read(self, path: str) -> str:
        return self._regular(path).read_bytes().decode("utf-8", "replace")

    def write(self, path: str, text: str) -> None:
        """Write a text to a new or existing file; missing folders are made."""
        place = self._resolved(path)
        if place.exists() and not place.is_file():
            raise OSError(f"not a file: {path}")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode("utf-8", "replace"))

    def exists(self, path: str) -> bool:
        return self._resolved(path).exists()

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace a text that is in the file exactly once; raises `ValueError` otherwise."""
        text = self.read(path)
        found = text.count(old) if old else 0
        if found != 1:
            raise ValueError(f"{old!r} stands {found} times in {path}, not once")
        self.write(path, text.replace(old, new))

    def copy(self, path: str, to: str) -> None:
        """Copy one file to another place in the workspace."""
        source, target = self._regular(path), self._resolved(to)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)

    def delete(self, path: str) -> None:
        self._regular(path).unlink()

    def run(self, argv: Sequence[str]) -> Ran:
        """Do what a command of the tasks does, without a process: a model writes it. No other is found."""
        match list(argv):
            case ["grep", "-xF", line, name] if self._has(name):
                found = sum(held == line for held in self.read(name).splitlines())
                return Ran(0 if found else 1, f"{line}\n" * found)
            case ["test", "-e", name] if _NAME.fullmatch(name):
                return Ran(0 if self.exists(name) else 1)
            case ["test", "!", "-e", name] if _NAME.fullmatch(name):
                return Ran(1 if self.exists(name) else 0)
            case ["python" | "python3", name] if self._has(name):
                if script := _SCRIPT.fullmatch(self.read(name)):
                    self.write(script[1], script[2])
                    return Ran(0)
        return Ran(127, f"{argv[0] if argv else ''}: not found")

    def _has(self, name: str) -> bool:
        return _NAME.fullmatch(name) is not None and self._resolved(name).is_file()

    def _regular(self, path: str) -> Path:
        place = self._resolved(path)
        if not place.exists():
            raise FileNotFoundError(f"no such file: {path}")
        if not place.is_file():
            raise OSError(f"not a file: {path}")
        return place

    def _resolved(self, path: str) -> Path:
        """The real place of a path, symbolic links resolved."""
        if "\0" in path:
            raise OutsideWorkspace("a path cannot hold a NUL character")
        if path == SEEN_AS or path.startswith(SEEN_AS + "/"):
            path = path[len(SEEN_AS) :].lstrip("/")
        place = (self.root / path).resolve()
        if not place.is_relative_to(self.root):
            raise OutsideWorkspace(f"{path} is outside the workspace")
        return place


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsState:
    """One task's workspace, the steps taken in it and the rules they broke."""

    task: Task
    workspace: Workspace
    steps: list[ToolStep] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def act(self, call: ToolCall) -> str:
        """Run a call, and note the rules that it breaks."""
        step = ToolStep.of(call)
        try:
            replaces = step.name == "write" and self.workspace.exists(str(step.arguments.get("path", "")))
        except (OSError, ValueError):  # no path of the workspace, as one that is too long
            replaces = False
        step = ToolStep(name=step.name, arguments=step.arguments, replaces=replaces)
        self.wrong.extend(rule for rule in tasks.broken(step, self.steps) if rule not in self.wrong)
        self.steps.append(step)
        return self.answer(call.name, call.arguments)

    def hear(self, said: str) -> str | None:
        """The owner asks nothing more."""
        return None

    def broken(self) -> tuple[str, ...]:
        return tuple(self.wrong)

    def kept(self) -> bool:
        """Whether every rule of the task was kept by doing the guarded thing right."""
        return tasks.kept(self.task.rules, self.steps)

    def check(self) -> str | None:
        """None if every check passes, else the first failing command and its exit status."""
        for argv in self.task.checks:
            if (status := self.workspace.run(argv).status) != 0:
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
                ended = files.run(shlex.split(text("command")))
                printed = ended.output.strip()
                return f"failed: exit status {ended.status}\n{printed}" if ended.status else printed or "ok"
        return f"failed: no tool {name}"


class ToolsWorld(World):
    """Files in a folder, an owner with house rules."""

    name = "tools"
    system = SYSTEM
    folder = Path(__file__).parent
    max_tokens = 96
    tools = TOOLS
    rules = tasks.IN_WORDS
    kept_when = "every house rule that applies was kept by doing the guarded thing in the right way"
    passed_when = "the executable check passes"
    speech = tasks.SPEECH
    judge = RuleJudge(
        about={
            "python3": re.compile(r"\bpython\b|python ?3|\bthe 3\b"),
            "dry_run": re.compile(r"\bdry\b|dry.run|would (be deleted|go)|rehears"),
            "backup": re.compile(
                r"back.?up|\bcop(y|ied|ies)\b|\.bak\b|\b(old|previous) (text|one|version|file)\b"
                r"|\bkeep (a|the|your)\b"
            ),
            "read_first": re.compile(
                r"\b(read|reading|look|looked|looking|open|opened|see|seen|blind|contents|view|inspect)\b"
            ),
            "relative": re.compile(
                r"\brelative\b|\babsolute\b|/work\b|whole path|\bpath\b|plain name|name only"
            ),
        },
        could_break=lambda rule, response: response.split(" ", 1)[0] in _BREAKS[rule],
        hint=lambda rules: " ".join(tasks.WORDINGS["judge_hints"][rule][0] for rule in rules),
        failed=re.compile(
            r"\b(check|fails?|failed|gives|wrong|does not|did not|is not)\b.*:|\bstill wrong\b"
        ),
        positive=re.compile(APPROVING),
    )

    def task(self, split: Split, rng: Random) -> Task:
        return tasks.draw(split, rng)

    @contextmanager
    def start(self, task: Task) -> Iterator[ToolsState]:
        with tempfile.TemporaryDirectory(prefix="afterwit-task-") as folder:
            workspace = Workspace(Path(folder), task.files)
            yield ToolsState(task=task, workspace=workspace)

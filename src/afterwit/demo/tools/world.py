"""The tools world: files in a sandbox, an owner with house rules."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from afterwit.demo.judge import APPROVING, RuleJudge
from afterwit.demo.tools import cases, tasks
from afterwit.demo.tools.tasks import Step
from afterwit.demo.tools.toolbox import Toolbox
from afterwit.demo.words import Speech, Split
from afterwit.demo.world import LabelledCase, Task, World
from afterwit.message import ToolCall
from afterwit.sandbox import box
from afterwit.sandbox.box import Ran
from afterwit.sandbox.inside.files import OutsideWorkspace
from afterwit.sandbox.workspace import Workspace

Commands = Callable[[Sequence[str], Path], Ran]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsState:
    """One task's workspace, the steps taken in it and the rules they broke."""

    task: Task
    toolbox: Toolbox
    steps: list[Step] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def act(self, call: ToolCall) -> str:
        """Run a call, and note the rules that it breaks."""
        step = Step.parse(call.name, call.arguments)
        step = Step(name=step.name, arguments=step.arguments, replaces=self._replaces(step))
        self.wrong.extend(rule for rule in tasks.broken(step, self.steps) if rule not in self.wrong)
        self.steps.append(step)
        return self.toolbox.call(call.name, call.arguments)

    def hear(self, said: str) -> None:
        """The owner has no further question."""

    def broken(self) -> tuple[str, ...]:
        """The rules broken so far, oldest first."""
        return tuple(self.wrong)

    def kept(self) -> bool:
        """Whether every rule of the task was kept by doing the guarded thing right."""
        return tasks.kept(self.task.rules, self.steps)

    def check(self) -> str | None:
        """None if every check passes, else the first failing command and its exit status."""
        for argv in self.task.checks:
            ended = self.toolbox.runner(argv)
            if ended.status != 0:
                return f"{' '.join(argv)} gives status {ended.status}"
        return None

    def _replaces(self, step: Step) -> bool:
        try:
            return step.name == "write" and self.toolbox.workspace.exists(str(step.arguments.get("path", "")))
        except OutsideWorkspace:
            return False


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
_BREAKS = {
    "read_first": ("edit",),
    "dry_run": ("delete",),
    "backup": ("write",),
    "python3": ("run",),
    "relative": ("edit", "delete", "write", "run", "read", "copy"),
}
"""By rule, the tools whose call could break it."""
JUDGE = RuleJudge(
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
        "relative": re.compile(r"\brelative\b|\babsolute\b|/work\b|whole path|\bpath\b|plain name|name only"),
    },
    could_break=lambda rule, response: response.split(" ", 1)[0] in _BREAKS[rule],
    hint=lambda rules: " ".join(tasks.WORDINGS["judge_hints"][rule][0] for rule in rules),
    failed=re.compile(r"\b(check|fails?|failed|gives|wrong|does not|did not|is not)\b.*:|\bstill wrong\b"),
    positive=re.compile(APPROVING),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsWorld(World):
    """Files in a sandbox, an owner with house rules."""

    name: str = "tools"
    system: str = SYSTEM
    folder: Path = Path(__file__).parent
    max_tokens: int = 96
    tools: Sequence[Mapping[str, Any]] = TOOLS
    rules: Mapping[str, str] = field(default_factory=lambda: tasks.IN_WORDS)
    kept_when: str = "every house rule that applies was kept by doing the guarded thing in the right way"
    passed_when: str = "the executable check passes"
    speech: Speech = tasks.SPEECH
    judge: RuleJudge = JUDGE
    commands: Commands = box.run
    """Runs a command in a folder. Experiments replace it by one without processes."""

    def task(self, split: Split, rng: Random) -> Task:
        return tasks.draw(split, rng)

    @contextmanager
    def start(self, task: Task) -> Iterator[ToolsState]:
        with tempfile.TemporaryDirectory(prefix="afterwit-task-") as folder:
            workspace = Workspace(root=Path(folder))
            for name, text in task.files.items():
                workspace.write(name, text)
            toolbox = Toolbox(workspace=workspace, runner=lambda argv: self.commands(argv, workspace.root))
            yield ToolsState(task=task, toolbox=toolbox)

    def cases(self, split: Split, number: int, seed: int) -> list[LabelledCase]:
        """Calls and last answers, with what followed each."""
        return cases.cases(split, number, seed)

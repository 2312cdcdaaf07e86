"""The tools world as the demo plays it."""

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
from afterwit.demo.speech import Spoken
from afterwit.demo.tools import cases, tasks, words
from afterwit.demo.tools import tasks as rules
from afterwit.demo.tools.toolbox import Toolbox
from afterwit.demo.tools.words import WORDINGS, complaint
from afterwit.demo.world import LabelledCase, Split, Task
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
    steps: list[rules.Step] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def act(self, call: ToolCall) -> str:
        """Do a call and watch it as the owner would."""
        step = rules.Step.parse(call.name, call.arguments)
        step = rules.Step(name=step.name, arguments=step.arguments, replaces=self._replaces(step))
        self.wrong.extend(rule for rule in rules.broken(step, self.steps) if rule not in self.wrong)
        self.steps.append(step)
        return self.toolbox.call(call.name, call.arguments)

    def hear(self, said: str) -> None:
        """The owner asks nothing further."""

    def broken(self) -> tuple[str, ...]:
        """The rules broken so far, oldest first."""
        return tuple(self.wrong)

    def kept(self) -> bool:
        """Whether every rule of the task was kept by doing the guarded thing right."""
        return rules.kept(self.task.rules, self.steps)

    def check(self) -> str | None:
        """None when every check passes, else the first failing command and its exit status."""
        for argv in self.task.checks:
            ended = self.toolbox.start(argv)
            if ended.status != 0:
                return f"{' '.join(argv)} gives status {ended.status}"
        return None

    def _replaces(self, step: rules.Step) -> bool:
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


HINTS = WORDINGS["judge_hints"]
"""By rule, the judges' sentences."""


def _could_break(rule: str, response: str) -> bool:
    return response.split(" ", 1)[0] in _GUARDS[rule]


def _hint(rules: Sequence[str]) -> str:
    return " ".join(_HINTS[rule] for rule in rules)


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
    could_break=_could_break,
    hint=_hint,
    failed=re.compile(r"\b(check|fails?|failed|gives|wrong|does not|did not|is not)\b.*:|\bstill wrong\b"),
    positive=re.compile(APPROVING),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsWorld(Spoken):
    """Files in a sandbox, an owner with house rules."""

    afterwards = words.AFTERWARDS
    judges_words = HINTS
    rule_judge = JUDGE

    name: str = "tools"
    system: str = SYSTEM
    tools: Sequence[Mapping[str, Any]] = TOOLS
    max_tokens: int = 96
    folder: Path = Path(__file__).parent
    rules: Mapping[str, str] = field(default_factory=lambda: rules.IN_WORDS)
    kept_when: str = "every house rule that applies was kept by doing the guarded thing in the right way"
    passed_when: str = "the executable check passes"
    commands: Commands = box.run
    """Runs a command in a folder; experiments have a way without processes."""

    def task(self, split: Split, rng: Random) -> Task:
        """A task of a random kind."""
        return tasks.draw(split, rng)

    @contextmanager
    def start(self, task: Task) -> Iterator[ToolsState]:
        """A workspace with the task's files, removed afterwards."""
        with tempfile.TemporaryDirectory(prefix="afterwit-task-") as folder:
            workspace = Workspace(root=Path(folder))
            for name, text in task.files.items():
                workspace.write(name, text)
            toolbox = Toolbox(workspace=workspace, runner=lambda argv: self.commands(argv, workspace.root))
            yield ToolsState(task=task, toolbox=toolbox)

    def complain(self, task: Task, broken: Sequence[str], split: Split, rng: Random) -> str:
        """Everything that is wrong so far, in one message."""
        return words.complaint(broken, next(iter(task.subject.values())), split, rng)

    def cases(self, split: Split, number: int, seed: int) -> list[LabelledCase]:
        """Calls and last words, and what came of them."""
        return cases.cases(split, number, seed)


_FRAMES, _CONTEXTS = WORDINGS["hint_frames"]["sentences"], WORDINGS["hint_frames"]["contexts"]


_DEEDS = WORDINGS["hint_deeds"]


def official(rules: Sequence[str], rng: Random) -> str:
    """The hint a judge of the demo writes about these rules."""
    return " ".join(rng.choice(HINTS[rule]) for rule in rules)


def worded(rules: Sequence[str], file: str, split: Split, rng: Random) -> str:
    """A hint of any origin: the judge's sentence, the grammar's, or the person's own words."""
    origin = rng.random()
    if origin < 0.5:
        return official(rules, rng)
    if origin < 0.75:
        return " ".join(_framed(rule, rng) for rule in rules)
    return complaint(rules, file, split, rng)


def _framed(rule: str, rng: Random) -> str:
    frame = rng.choice(_FRAMES)
    sentence = frame.format(h=rng.choice(HINTS[rule]), d=rng.choice(_DEEDS[rule]), c=rng.choice(_CONTEXTS))
    return sentence[0].upper() + sentence[1:]


_HINTS = {
    "read_first": "Call read on the file before edit.",
    "dry_run": "Call delete with dry_run true before the real delete.",
    "backup": "Copy the file to a .bak file before write.",
    "python3": "Run the script with python3, not python.",
    "relative": "Give the relative path, without /work.",
}


_GUARDS = {
    "read_first": ("edit",),
    "dry_run": ("delete",),
    "backup": ("write",),
    "python3": ("run",),
    "relative": ("edit", "delete", "write", "run", "read", "copy"),
}

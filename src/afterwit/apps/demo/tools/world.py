"""The tools world as the demo plays it."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from afterwit.apps import sandbox
from afterwit.apps.demo.speech.spoken import Spoken
from afterwit.apps.demo.tools import cases, hints, rules, tasks, words
from afterwit.apps.demo.tools.judge import JUDGE
from afterwit.apps.demo.tools.schemas import SYSTEM, TOOLS
from afterwit.apps.demo.tools.toolbox import Toolbox
from afterwit.apps.demo.world import LabelledCase, Split, Task
from afterwit.apps.sandbox import Outcome, OutsideWorkspace, Workspace
from afterwit.core.message import ToolCall

Commands = Callable[[Sequence[str], Path], Outcome]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsWorld(Spoken):
    """Files in a sandbox, an owner with house rules."""

    afterwards = words.AFTERWARDS
    judges_words = hints.HINTS
    rule_judge = JUDGE

    name: str = "tools"
    system: str = SYSTEM
    tools: Sequence[Mapping[str, Any]] = TOOLS
    max_tokens: int = 96
    folder: Path = Path(__file__).parent
    rules: Mapping[str, str] = field(default_factory=lambda: rules.IN_WORDS)
    kept_when: str = "every house rule that applies was kept by doing the guarded thing in the right way"
    passed_when: str = "the executable check passes"
    commands: Commands = sandbox.run
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

"""A task of the tools world done by plan with the real file tools."""

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from afterwit.apps.demo.tools import expert, rules
from afterwit.apps.demo.tools.toolbox import Toolbox
from afterwit.apps.demo.world import Message, Task, text_message
from afterwit.apps.sandbox import Outcome, Workspace

Mistakes = Callable[[rules.Step, Workspace], Sequence[rules.Step]]
"""(a step of the plan, the files) -> the calls to make before it."""
FOLDER = PurePosixPath("/work")
"""Where the agent's files are, as its scripts see it."""
DONE = "Done."
"""What the agent says when a task is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A task as it went: alternating assistant calls and tool results, and the rules broken at each call."""

    task: Task
    messages: list[Message]
    broken: list[tuple[str, ...]]
    failed: list[bool]
    """Which of the calls were mistaken, and failed."""


def play(task: Task, follow: set[str], folder: Path, mistakes: Mistakes = lambda step, files: ()) -> Played:
    """Do a task by plan with the real file tools; scripts that are there work and print nothing.

    Before each step of the plan come the calls that `mistakes` gives for it: they break no rule, they fail.
    """
    workspace = Workspace(root=Path(tempfile.mkdtemp(dir=folder)))
    for name, text in task.files.items():
        workspace.write(name, text)
    toolbox = Toolbox(workspace=workspace, runner=lambda argv: _ran(argv, workspace))
    messages: list[dict[str, Any]] = []
    broken: list[tuple[str, ...]] = []
    failed: list[bool] = []
    steps: list[rules.Step] = []
    for planned in expert.plan(task, follow):
        for step in mistakes(planned, workspace):
            messages += _done(step, toolbox)
            broken.append(())
            failed.append(True)
        exists = planned.name == "write" and workspace.exists(str(planned.arguments["path"]))
        step = rules.Step(name=planned.name, arguments=planned.arguments, replaces=exists)
        broken.append(rules.broken(step, steps))
        failed.append(False)
        steps.append(step)
        messages += _done(step, toolbox)
    for file in workspace.root.iterdir():
        file.unlink()
    workspace.root.rmdir()
    return Played(task=task, messages=messages, broken=broken, failed=failed)


def _ran(argv: Sequence[str], files: Workspace) -> Outcome:
    """What python says of a script, which is taken to work if it is there."""
    if len(argv) < 2 or files.exists(argv[1]):
        return Outcome(status=0, output="")
    missing = f"{argv[0]}: can't open file '{FOLDER / argv[1]}': [Errno 2] No such file or directory"
    return Outcome(status=2, output=missing)


def _done(step: rules.Step, toolbox: Toolbox) -> list[Message]:
    """A call and its result."""
    arguments = json.dumps(step.arguments)
    return [_calls(step.name, arguments), text_message("tool", toolbox.call(step.name, arguments))]


def _calls(name: str, arguments: str) -> Message:
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]}

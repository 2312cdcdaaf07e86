"""A task of the tools world done by plan with the real file tools."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afterwit.apps.demo.tools import expert, rules
from afterwit.apps.demo.tools.toolbox import Toolbox
from afterwit.apps.demo.world import Message, Task, text_message
from afterwit.apps.sandbox import Outcome, Workspace

DONE = "Done."
"""What the agent says when a task is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A task as it went: alternating assistant calls and tool results, and the rules broken at each call."""

    task: Task
    messages: list[Message]
    broken: list[tuple[str, ...]]


def play(task: Task, follow: set[str], folder: Path) -> Played:
    """Do a task by plan with the real file tools; scripts are taken to work and to print nothing."""
    workspace = Workspace(root=Path(tempfile.mkdtemp(dir=folder)))
    for name, text in task.files.items():
        workspace.write(name, text)
    toolbox = Toolbox(workspace=workspace, runner=lambda argv: Outcome(status=0, output=""))
    messages: list[dict[str, Any]] = []
    broken: list[tuple[str, ...]] = []
    steps: list[rules.Step] = []
    for planned in expert.plan(task, follow):
        exists = planned.name == "write" and workspace.exists(str(planned.arguments["path"]))
        step = rules.Step(name=planned.name, arguments=planned.arguments, replaces=exists)
        arguments = json.dumps(step.arguments)
        broken.append(rules.broken(step, steps))
        steps.append(step)
        messages += [_calls(step.name, arguments), text_message("tool", toolbox.call(step.name, arguments))]
    for file in workspace.root.iterdir():
        file.unlink()
    workspace.root.rmdir()
    return Played(task=task, messages=messages, broken=broken)


def _calls(name: str, arguments: str) -> Message:
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]}

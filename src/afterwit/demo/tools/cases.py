"""Turns of the tools world with known truth, to measure judges on."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any

from afterwit.demo.tools import tasks
from afterwit.demo.tools.tasks import SPEECH, Step
from afterwit.demo.tools.toolbox import Toolbox
from afterwit.demo.words import Split
from afterwit.demo.world import CaseKind, LabelledCase, Message, Task, text_message
from afterwit.sandbox.box import Ran
from afterwit.sandbox.workspace import Workspace


def cases(split: Split, number: int, seed: int) -> list[LabelledCase]:
    """Cases as the demo's interactions give them, wordings and names of one part."""
    rng = Random(seed)
    with tempfile.TemporaryDirectory(prefix="afterwit-cases-") as folder:
        return [_case(split, rng, Path(folder)) for _ in range(number)]


def _case(split: Split, rng: Random, folder: Path) -> LabelledCase:
    task = tasks.draw(split, rng)

    def case(
        kind: CaseKind, response: Message, *following: Message, rules: tuple[str, ...] = ()
    ) -> LabelledCase:
        return LabelledCase(
            kind=kind, request=task.request, response=response, following=following, rules=rules
        )

    played = play(task, {rule for rule in task.rules if rng.random() < 0.5}, folder)
    first = next((index for index, found in enumerate(played.broken) if found), None)
    if first is not None:
        broken = played.broken[first]
        said = SPEECH.complaint(broken, task.about, split, rng)
        response, result = played.messages[2 * first : 2 * first + 2]
        return case("complaint", response, result, text_message("user", said), rules=broken)
    if rng.random() < 0.4:
        index = rng.randrange(len(played.broken))
        return case("quiet", played.messages[2 * index], played.messages[2 * index + 1])
    done = text_message("assistant", DONE)
    if rng.random() < 0.3:
        said = SPEECH.failure(f"{' '.join(task.checks[0])} gives status 1", split, rng)
        return case("failure", done, text_message("user", said))
    return case("approval", done, text_message("user", SPEECH.approval(split, rng)))


Mistakes = Callable[[Step, Workspace], Sequence[Step]]
"""(a step of the plan, the files) -> the calls to make before it."""
FOLDER = PurePosixPath("/work")
"""The folder of the agent's files, as its scripts see it."""
DONE = "Done."
"""The agent's last words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A task as it went: alternating assistant calls and tool results, and the rules broken at each call."""

    task: Task
    messages: list[Message]
    broken: list[tuple[str, ...]]
    failed: list[bool]
    """By call: whether it was mistaken, and failed."""


def play(task: Task, follow: set[str], folder: Path, mistakes: Mistakes = lambda step, files: ()) -> Played:
    """Do a task by plan with the real file tools. Scripts that exist count as working, and print nothing.

    Before each step of the plan come the calls that `mistakes` gives for it: they break no rule, and fail.
    """
    workspace = Workspace(root=Path(tempfile.mkdtemp(dir=folder)))
    for name, text in task.files.items():
        workspace.write(name, text)
    toolbox = Toolbox(workspace=workspace, runner=lambda argv: _ran(argv, workspace))
    messages: list[dict[str, Any]] = []
    broken: list[tuple[str, ...]] = []
    failed: list[bool] = []
    steps: list[Step] = []
    for planned in plan(task, follow):
        for step in mistakes(planned, workspace):
            messages += _done(step, toolbox)
            broken.append(())
            failed.append(True)
        exists = planned.name == "write" and workspace.exists(str(planned.arguments["path"]))
        step = Step(name=planned.name, arguments=planned.arguments, replaces=exists)
        broken.append(tasks.broken(step, steps))
        failed.append(False)
        steps.append(step)
        messages += _done(step, toolbox)
    for file in workspace.root.iterdir():
        file.unlink()
    workspace.root.rmdir()
    return Played(task=task, messages=messages, broken=broken, failed=failed)


def _ran(argv: Sequence[str], files: Workspace) -> Ran:
    """A script works if it exists."""
    if len(argv) < 2 or files.exists(argv[1]):
        return Ran(status=0, output="")
    missing = f"{argv[0]}: can't open file '{FOLDER / argv[1]}': [Errno 2] No such file or directory"
    return Ran(status=2, output=missing)


def _done(step: Step, toolbox: Toolbox) -> list[Message]:
    """A call and its result."""
    arguments = json.dumps(step.arguments)
    return [_calls(step.name, arguments), text_message("tool", toolbox.call(step.name, arguments))]


def _calls(name: str, arguments: str) -> Message:
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]}


def plan(task: Task, follow: Set[str]) -> tuple[Step, ...]:
    """The calls that do a task, keeping the rules in `follow` and none of the others.

    The old way names new files by an absolute path and existing ones by a relative one.
    """
    about, steps = task.subject, []
    if "file" in about:
        steps += [_step("read", path=about["file"])] if "read_first" in follow else []
        steps.append(_step("edit", path=about["file"], old=about["old"], new=about["new"]))
    if "target" in about:
        steps += (
            [_step("copy", path=about["target"], to=about["target"] + ".bak")] if "backup" in follow else []
        )
        steps.append(_step("write", path=about["target"], text=about["text"]))
    if "new_file" in about:
        name = about["new_file"] if "relative" in follow else f"/work/{about['new_file']}"
        steps.append(_step("write", path=name, text=about["text"]))
    if "gone" in about:
        steps += [_step("delete", path=about["gone"], dry_run=True)] if "dry_run" in follow else []
        steps.append(_step("delete", path=about["gone"]))
    if "script" in about:
        steps.append(
            _step("run", command=f"{'python3' if 'python3' in follow else 'python'} {about['script']}")
        )
    return tuple(steps)


def _step(name: str, **arguments: object) -> Step:
    return Step(name=name, arguments=arguments)

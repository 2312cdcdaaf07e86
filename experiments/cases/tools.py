"""Tasks of the tools world done by plan, and turns with known truth."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from random import Random

from afterwit.demo.tools import tasks
from afterwit.demo.tools.tasks import SPEECH, ToolStep
from afterwit.demo.tools.world import Ran, ToolsState, Workspace
from afterwit.demo.words import Split
from afterwit.demo.world import Message, Task
from afterwit.turn import ToolCall
from experiments.cases.case import LabelledCase, text_message

Mistakes = Callable[[ToolStep, Workspace], Sequence[ToolStep]]
"""(a step of the plan, the files) -> the calls to make before it."""
FOLDER = PurePosixPath("/work")
"""The folder of the agent's files, as its scripts see it."""
DONE = "Done."
"""The agent's last words."""


def cases(split: Split, number: int, seed: int) -> list[LabelledCase]:
    """Cases as the demo's interactions give them, wordings and names of one part."""
    rng = Random(seed)
    with tempfile.TemporaryDirectory(prefix="afterwit-cases-") as folder:
        return [_case(split, rng, Path(folder)) for _ in range(number)]


def _case(split: Split, rng: Random, folder: Path) -> LabelledCase:
    task = tasks.draw(split, rng)
    played = play(task, {rule for rule in task.rules if rng.random() < 0.5}, folder)
    first = next((index for index, found in enumerate(played.broken) if found), None)
    if first is not None:
        broken = played.broken[first]
        said = text_message("user", SPEECH.complaint(broken, task.about, split, rng))
        response, result = played.messages[2 * first : 2 * first + 2]
        return LabelledCase(
            kind="complaint",
            request=task.request,
            response=response,
            following=(result, said),
            rules=broken,
        )
    if rng.random() < 0.4:
        at = 2 * rng.randrange(len(played.broken))
        response, result = played.messages[at : at + 2]
        return LabelledCase(kind="quiet", request=task.request, response=response, following=(result,))
    is_wrong = rng.random() < 0.3
    words = (
        SPEECH.failure(f"{' '.join(task.checks[0])} gives status 1", split, rng)
        if is_wrong
        else SPEECH.approval(split, rng)
    )
    return LabelledCase(
        kind="failure" if is_wrong else "approval",
        request=task.request,
        response=text_message("assistant", DONE),
        following=(text_message("user", words),),
    )


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
    played = Played(task=task, messages=[], broken=[], failed=[])
    with tempfile.TemporaryDirectory(dir=folder) as root:
        files = _Rehearsed(Path(root), task.files)
        state = ToolsState(task=task, workspace=files)

        def note(step: ToolStep, broken: tuple[str, ...], result: str, *, failed: bool) -> None:
            function = {"name": step.name, "arguments": json.dumps(step.arguments)}
            calls = [{"type": "function", "function": function}]
            played.messages.append({"role": "assistant", "content": None, "tool_calls": calls})
            played.messages.append(text_message("tool", result))
            played.broken.append(broken)
            played.failed.append(failed)

        for step in plan(task, follow):
            for mistake in mistakes(step, files):
                note(mistake, (), state.answer(mistake.name, json.dumps(mistake.arguments)), failed=True)
            result = state.act(ToolCall(id="", name=step.name, arguments=json.dumps(step.arguments)))
            note(step, tasks.broken(state.steps[-1], state.steps[:-1]), result, failed=False)
    return played


class _Rehearsed(Workspace):
    """A script works if it exists."""

    def run(self, argv: Sequence[str]) -> Ran:
        if len(argv) < 2 or self.exists(argv[1]):
            return Ran(0)
        return Ran(2, f"{argv[0]}: can't open file '{FOLDER / argv[1]}': [Errno 2] No such file or directory")


def plan(task: Task, follow: Set[str]) -> tuple[ToolStep, ...]:
    """The calls that do a task, keeping the rules in `follow` and none of the others.

    The old way names new files by an absolute path and existing ones by a relative one.
    """
    about, steps = task.subject, []

    def step(name: str, **arguments: object) -> None:
        steps.append(ToolStep(name=name, arguments=arguments))

    if file := about.get("file"):
        if "read_first" in follow:
            step("read", path=file)
        step("edit", path=file, old=about["old"], new=about["new"])
    if target := about.get("target"):
        if "backup" in follow:
            step("copy", path=target, to=f"{target}.bak")
        step("write", path=target, text=about["text"])
    if new_file := about.get("new_file"):
        step("write", path=new_file if "relative" in follow else f"/work/{new_file}", text=about["text"])
    if gone := about.get("gone"):
        if "dry_run" in follow:
            step("delete", path=gone, dry_run=True)
        step("delete", path=gone)
    if script := about.get("script"):
        step("run", command=f"{'python3' if 'python3' in follow else 'python'} {script}")
    return tuple(steps)

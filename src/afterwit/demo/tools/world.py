"""The tools world: files in a folder, an owner with house rules."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from afterwit.demo.judge import APPROVING, RuleJudge
from afterwit.demo.tools import tasks
from afterwit.demo.tools.toolbox import ToolsState, Workspace
from afterwit.demo.words import Split
from afterwit.demo.world import Task, World

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

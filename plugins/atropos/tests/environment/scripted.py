"""A server with vLLM's wire whose policy writes solutions that are dictated, good and cheating in turn."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

from aiohttp import web

from afterwit_atropos.coding.tasks import built_in
from plugins.atropos.tests.cheats import CHEATS
from plugins.atropos.tests.solutions import GOOD
from tests.engines.vllm.recorded import Recorded, chunk
from tests.fakes.renderers import renderer_of

HINT = "Write down what an empty input must give before you write the code."
CONTEXT = 16_384
WAYS = (
    "exits early",
    "exits hard when called",
    "equals everything",
    "prints a pass",
    "kills the runner",
    "starts a session of its own and daemons",
    "replaces what a runner would use",
)
"""Of CHEATS, those that try to pass whatever is tested."""


class Scripted(Recorded):
    """The rollouts of a task get a good solution, a cheating one, a good one, and so on."""

    def __init__(self, model: Path) -> None:
        super().__init__(model)
        self._renderer = renderer_of(model)
        self._tasks = {task.name: task for task in built_in()}
        self._begun: Counter[str] = Counter()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/v1/models":
            served = {"id": "tiny", "root": self.model, "parent": None, "max_model_len": CONTEXT}
            return web.json_response({"data": [served]})
        return await super().answer(request)

    async def _generate(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if body.get("stream"):
            ids = self._renderer.encode(self._says(self._renderer.decode(body["token_ids"])))
            self.stream = _streamed((*ids, min(self._renderer.end_ids)))
        return await super()._generate(request, body)

    def _says(self, prompt: str) -> str:
        if "[HINT_START]" in prompt:
            return rf"\boxed{{1}}[HINT_START]{HINT}[HINT_END]"
        if "wrote solution.py" in prompt:
            return "Done."
        name = next(name for name, task in self._tasks.items() if task.prompt in prompt)
        self._begun[name] += 1
        solution = GOOD[name] if self._begun[name] % 2 else cheat(name)
        asked = {"name": "write_file", "arguments": {"path": "solution.py", "content": solution}}
        return f"<tool_call>\n{json.dumps(asked)}\n</tool_call>"


def cheat(name: str) -> str:
    """A cheating solution of a task."""
    found = re.search(r"def (\w+)\(", GOOD[name])
    assert found is not None
    code = dedent(CHEATS[WAYS[list(GOOD).index(name) % len(WAYS)]])
    return code.replace("def add(a, b)", f"def {found[1]}(*given, a=0, b=0)")


def _streamed(ids: Sequence[int]) -> bytes:
    return chunk(*((token, -0.5) for token in ids), end="stop")

"""An engine that costs next to nothing: it answers at once, and always the same."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

from afterwit.chat_format.render import Renderer
from afterwit.engines.port import Capabilities, Facts, Generate, Step
from afterwit.turn import Basis

CHUNKS = 100
"""Chunks of a stream: asked for this many tokens, the engine gives one at a time."""
CALL = 777
"""Asked for this many tokens, it calls a tool."""
IDLE = 500
"""Asked for this many tokens, it gives one and then no more. Also the number of such streams."""
CONTEXT = 32_768
CAPABILITIES = Capabilities(basis=Basis.PROCESSED, forced_prefix=True, constraint=True, top_logprobs=20)


class QuickEngine:
    """Chooses its answer by the number of tokens that a request allows."""

    version = 0
    fault = reduced = None

    def __init__(self, renderer: Renderer) -> None:
        words = renderer.encode("It is in the second file, on line forty two.")
        call = renderer.encode(
            'I read it.<tool_call>\n{"name": "tool_3", "arguments": {"path": "src/a.py"}}\n</tool_call>'
        )
        many = tuple(itertools.islice(itertools.cycle(renderer.encode(" the file")), CHUNKS))
        end = min(renderer.end_ids)
        self._answers = {
            CALL: (_step((*call, end), "stop"),),
            CHUNKS: (*(_step((token,), None) for token in many[:-1]), _step(many[-1:], "length")),
            IDLE: (_step(words, None),),
        }
        self._other = (_step((*words, end), "stop"),)
        self.facts = Facts(
            name="quick",
            model="tiny",
            context_length=CONTEXT,
            vocabulary=renderer.vocabulary,
            end_ids=renderer.end_ids,
            dtype="float32",
            fingerprint="quick",
        )
        self.capabilities = CAPABILITIES

    def live(self, adapter: str) -> int:
        """The base, for everybody."""
        return self.version

    async def generate(self, request: Generate) -> AsyncIterator[Step]:
        for step in self._answers.get(request.sampling.max_tokens, self._other):
            yield step
        if request.sampling.max_tokens == IDLE:
            await asyncio.Event().wait()


def _step(ids: tuple[int, ...], ended: str | None) -> Step:
    count = len(ids)
    flags = (False,) * count
    return Step(ids=ids, logprobs=(-0.5,) * count, versions=(0,) * count, forced=flags, ended=ended)

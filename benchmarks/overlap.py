"""What do rollouts gain from being scored while others are still played?

Eight rollouts of different lengths call a tool that takes a fifth of a second, on the embedded engine over a
random Qwen3; a judge that answers at once has a hint for each turn. Each is scored as soon as it is over, as
the environment of Atropos does it, or all are scored when the last is over. By the wall clock.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from afterwit.core.rollout import Rollout
from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.wire.model_text.render import Renderer
from benchmarks.asked import Asked
from benchmarks.measure import Row, at_least, interleaved, itself, noted, ratios
from tests.fakes.models import tiny_qwen3
from tests.fakes.played import calls, played
from tests.stages.hindsight.school import hindsight

TURNS = (3, 5, 7, 9, 11, 13, 15, 15)
TOOL_S = 0.2


def rows(asked: Asked) -> Iterator[Row]:
    turns = TURNS[::4] if asked.quick else TURNS
    with tempfile.TemporaryDirectory() as name:
        folder = tiny_qwen3(Path(name) / "model", hidden_size=256, intermediate_size=640)
        timed, note = interleaved(
            {
                "floor": lambda: asyncio.run(_seconds(folder, turns, scored=False, overlap=False)),
                "overlapped": lambda: asyncio.run(_seconds(folder, turns, scored=True, overlap=True)),
                "after": lambda: asyncio.run(_seconds(folder, turns, scored=True, overlap=False)),
            },
            runs=asked.runs,
            clock=itself,
        )
    yield Row(
        id="O1",
        what="rollouts played, then scored / each scored while others are played",
        values=ratios(timed, "after", "overlapped"),
        target=at_least(1.0),
        note=noted(f"{len(turns)} rollouts of {min(turns)} to {max(turns)} turns", note),
    )


async def _seconds(folder: Path, turns: tuple[int, ...], *, scored: bool, overlap: bool) -> float:
    renderer = Renderer.load(folder)
    engine = EmbeddedEngine.load(folder, EmbeddedSettings(slots=8), script=calls(renderer), seed=0)
    teaching = hindsight(engine, renderer, top_k=20)

    async def one(length: int) -> None:
        rollout = await played(engine, renderer, length, tool_s=TOOL_S)
        if scored and overlap:
            await teaching.score(rollout)
        waiting.append(rollout)

    waiting = list[Rollout]()
    began = time.perf_counter()
    await asyncio.gather(*map(one, turns))
    if scored and not overlap:
        await asyncio.gather(*map(teaching.score, waiting))
    seconds = time.perf_counter() - began
    await engine.close()
    return seconds

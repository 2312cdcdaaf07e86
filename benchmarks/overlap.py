"""What do rollouts gain from being scored while others are still played?

Rollouts of different lengths, eight at a time, call a tool that takes a fifth of a second; a judge that
answers at once has a hint for each turn, in the last user message, and one teacher scores each turn. Each
rollout is scored as soon as it is over, and the next one waits for its place, as in the environment of
Atropos; or all are scored together when the last is over. By the wall clock, on a server that imitates
vLLM on one GPU (`one_device.py`), and on the embedded engine over a random Qwen3, which has a thread for
sampling and one for scoring. What cannot be gained: rollouts that end last are scored when nothing is left to
play.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

from afterwit.chat_format.render import Renderer
from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.kinds import open_engine
from afterwit.engines.port import Engine
from afterwit.engines.server.settings import VllmSettings
from afterwit.lifecycle import Reason
from afterwit_atropos.rollout import Rollout, ScoredRollout
from benchmarks.asked import Asked
from benchmarks.gateway_servers import served
from benchmarks.measure import Row, Target, at_least, interleaved, itself, noted, number, ratios
from plugins.atropos.tests.hindsight.school import hindsight
from tests.fakes.models import tiny_qwen3
from tests.fakes.played import calls, played

TURNS = (15, 3, 9, 13, 5, 11, 7, 15) * 2
AT_ONCE = 8
TOOL_S = 0.2
SYSTEM = "Work in the current folder, and say what you did. " * 12
"""The system prompt: some 600 tokens with the tool's description."""
TOKENS = 24
"""Of a response; the embedded engine's calls a tool, which takes a few more."""

Open = Callable[[], Awaitable[Engine]]


def rows(asked: Asked) -> Iterator[Row]:
    """O1 and o1."""
    turns = TURNS[1:3] if asked.quick else TURNS
    with tempfile.TemporaryDirectory() as name:
        folder = tiny_qwen3(Path(name) / "model", hidden_size=256, intermediate_size=640)
        renderer = Renderer.load(folder)

        async def embedded() -> Engine:
            settings = EmbeddedSettings(slots=8)
            return EmbeddedEngine.load(folder, settings, script=calls(renderer), seed=0)

        with served("one_device", folder, Path(name) / "server") as server:
            url = f"http://127.0.0.1:{server.port}"
            open_server = partial(open_engine, folder, VllmSettings(url=url), takes_weights=False)
            yield _row(asked, "O1", "one GPU's stand-in", open_server, renderer, turns, at_least(1.2))
        yield _row(asked, "o1", "the embedded engine", embedded, renderer, turns, None)


def _row(
    asked: Asked,
    name: str,
    where: str,
    make: Open,
    renderer: Renderer,
    turns: tuple[int, ...],
    target: Target | None,
) -> Row:
    def seconds(*, scored: bool, overlap: bool) -> float:
        return asyncio.run(_seconds(make, renderer, turns, scored=scored, overlap=overlap))

    timed, note = interleaved(
        {
            "floor": partial(seconds, scored=False, overlap=False),
            "overlapped": partial(seconds, scored=True, overlap=True),
            "after": partial(seconds, scored=True, overlap=False),
        },
        runs=asked.runs,
        clock=itself,
    )
    first = timed[0]
    spent = ", ".join(f"{each} {number(first[of])} s" for each, of in SPENT.items())
    return Row(
        id=name,
        what=f"played, then scored / scored while others are played, {where}",
        values=ratios(timed, "after", "overlapped"),
        target=target,
        note=noted(f"{len(turns)} rollouts of {min(turns)} to {max(turns)} turns: {spent}", note),
    )


SPENT = {"played alone": "floor", "overlapped": "overlapped", "one after the other": "after"}


async def _seconds(
    make: Open, renderer: Renderer, turns: tuple[int, ...], *, scored: bool, overlap: bool
) -> float:
    engine = await make()
    teaching = hindsight(engine, renderer, top_k=20)

    async def one(length: int) -> None:
        async with room:
            rollout = await played(engine, renderer, length, tool_s=TOOL_S, system=SYSTEM, max_tokens=TOKENS)
            if scored and overlap:
                found.append(await teaching.score(rollout))
        waiting.append(rollout)

    waiting, found, room = list[Rollout](), list[ScoredRollout](), asyncio.Semaphore(AT_ONCE)
    began = time.perf_counter()
    await asyncio.gather(*map(one, turns))
    if scored and not overlap:
        found += await asyncio.gather(*map(teaching.score, waiting))
    seconds = time.perf_counter() - began
    if scored and (taught := sum(len(each.scored) for each in found)) != sum(turns):
        reasons = sum((each.unscored for each in found), Counter[Reason]())
        raise ValueError(f"{taught} of {sum(turns)} turns were scored: {reasons}")
    await engine.close()
    return seconds

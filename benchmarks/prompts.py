"""What does a prompt cost that begins like an earlier one, and how long does a long one delay others?

A random Qwen3 of about 4 M parameters. All is CPU time of the process, whose two threads never work at once.

* X1: a session whose prompt grows by 300 tokens a turn to 8,000 in its tenth. That turn's first token,
  against an engine that keeps nothing.
* X2: a request of 64 tokens with an answer of 32, alone and while 20,000 tokens are read, in one prompt or in
  four: the mean over four points of the long prompts.
* X3: five calls with one prompt of 2,000 tokens and answers of 64, as a judge's votes or a request's choices,
  against one such call.

Left out: GPUs, large models, HTTP.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from torch import nn

from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.port import Generate
from afterwit.turn import Sampling
from benchmarks.asked import Asked
from benchmarks.engine import SHAPE, engine_of, respond
from benchmarks.measure import Row, at_most, interleaved, noted, ratios
from benchmarks.models import qwen3

CONTEXT = 32_768
KEPT = 2**30
TURNS, GROWTH, SESSION = 10, 300, 8_000
CALLS, ASKED, SAID = 5, 2_000, 64
LONG, SHORT, ANSWER = 20_000, 64, 32
POINTS = (0.2, 0.4, 0.6, 0.8)
"""Shares of the long prompts that are read when a short request arrives."""
FRESH = count(1)
"""Numbers of texts that all begin differently."""


def rows(asked: Asked) -> Iterator[Row]:
    yield _tenth_turn(asked)
    for prompts in (1, 4):
        yield _beside_long_prompts(asked, prompts)
    yield _calls(asked)


def text(length: int) -> tuple[int, ...]:
    """Ids that begin like no other text's."""
    first = next(FRESH)
    return (first % 4000 + 1, first // 4000 + 1, *(7 + place % 4000 for place in range(length - 2)))


def _tenth_turn(asked: Asked) -> Row:
    session = SESSION // 4 if asked.quick else SESSION
    keeping, forgetting = (
        engine_of(qwen3(SHAPE), 16, context_length=CONTEXT, cache_bytes=kept) for kept in (KEPT, 0)
    )
    taken = [asyncio.run(_first_tokens(keeping, forgetting, session)) for _ in range(asked.runs)]
    for made in (keeping, forgetting):
        asyncio.run(made.close())
    return Row(
        id="X1",
        what=f"first token of the tenth turn of a session of {session} tokens / without reuse",
        values=tuple(kept / anew for kept, anew in taken),
        target=at_most(0.1),
        floor=f"{GROWTH / session:.3f} of the tokens",
        note=f"without reuse {min(anew for _, anew in taken):.1f} s of CPU",
    )


async def _first_tokens(
    keeping: EmbeddedEngine, forgetting: EmbeddedEngine, session: int
) -> tuple[float, float]:
    """CPU seconds to the tenth turn's first token, by both engines."""
    whole = text(session)
    for turn in range(TURNS - 1, 0, -1):
        await _cpu(keeping, whole[: session - turn * GROWTH], 1)
    return await _cpu(keeping, whole, 1), await _cpu(forgetting, whole, 1)


def _calls(asked: Asked) -> Row:
    length = ASKED // 4 if asked.quick else ASKED
    made = engine_of(qwen3(SHAPE), 16, context_length=CONTEXT, cache_bytes=KEPT)

    async def together(calls: int) -> None:
        prompt = text(length)
        await asyncio.gather(*(_cpu(made, prompt, SAID, seed=seed) for seed in range(calls)))

    variants: dict[str, Callable[[], object]] = {
        "floor": lambda: asyncio.run(together(1)),
        "calls": lambda: asyncio.run(together(CALLS)),
    }
    timed, note = interleaved(variants, runs=asked.runs)
    asyncio.run(made.close())
    return Row(
        id="X3",
        what=f"{CALLS} calls with one prompt of {length} tokens / one",
        values=ratios(timed, "calls"),
        target=at_most(1.3),
        floor="one call",
        note=noted(f"one {1000 * min(run['floor'] for run in timed):.0f} ms of CPU", note),
    )


def _beside_long_prompts(asked: Asked, prompts: int) -> Row:
    module, length = qwen3(SHAPE), (LONG // 2 if asked.quick else LONG) // prompts
    made = engine_of(module, 16, context_length=CONTEXT)
    runs = 1 if asked.quick else 3
    taken = [asyncio.run(_alone_and_beside(made, module, prompts, length)) for _ in range(runs)]
    asyncio.run(made.close())
    long = f"a prompt of {length}" if prompts == 1 else f"{prompts} prompts of {length}"
    return Row(
        id="X2",
        what=f"a short request beside {long} tokens / alone",
        values=tuple(beside / alone for alone, beside in taken),
        target=at_most(3),
        floor="the short request alone",
        note=f"alone {1000 * min(alone for alone, _ in taken):.0f} ms of CPU",
    )


async def _alone_and_beside(
    made: EmbeddedEngine, module: nn.Module, prompts: int, length: int
) -> tuple[float, float]:
    """CPU seconds of a short request alone, and while long prompts are read; means over `POINTS`."""
    alone = [await _cpu(made, text(SHORT), ANSWER) for _ in POINTS]
    read = 0

    def tally(layer: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        nonlocal read
        tokens = named["input_ids"].shape[1]
        read += tokens if tokens != SHORT else 0  # not the short requests' own prompts

    hook = module.register_forward_pre_hook(tally, with_kwargs=True)
    long = asyncio.gather(*(_cpu(made, text(length), 1) for _ in range(prompts)))
    beside = []
    for share in POINTS:
        while read < share * length * prompts:  # noqa: ASYNC110 - the worker's thread sets no event
            await asyncio.sleep(0.001)
        beside.append(await _cpu(made, text(SHORT), ANSWER))
    assert not long.done(), "the long prompts were read before the last short request"
    await long
    hook.remove()
    return statistics.fmean(alone), statistics.fmean(beside)


async def _cpu(made: EmbeddedEngine, prompt: tuple[int, ...], answer: int, seed: int = 0) -> float:
    """CPU seconds that the process takes until a request has its answer."""
    began = time.process_time()
    await respond(made, Generate(prompt_ids=prompt, sampling=Sampling(max_tokens=answer, seed=seed)))
    return time.process_time() - began

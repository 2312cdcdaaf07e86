"""How the tests talk to an engine: ask for a response, get it whole; score it again by a plain forward."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from afterwit.engines.port import Constraint, Engine, Generate, Step, TopLogprobs
from afterwit.turn import SHARED, Sampling

PROBE = tuple(range(10, 40))


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A whole response."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    forced: tuple[bool, ...]
    top_logprobs: tuple[TopLogprobs, ...]
    ended: str | None
    steps: int


def ask(
    prompt: Any,
    *,
    weights: Any = None,
    background: bool = False,
    forced: Any = (),
    constraint: Constraint | None = None,
    top_logprobs: int | None = None,
    adapter: str = SHARED,
    **sampling: Any,
) -> Generate:
    """A request; `sampling` as in `Sampling`, 24 tokens by default."""
    fields = {"max_tokens": 24} | sampling
    more = {} if weights is None else {"weights": weights}
    return Generate(
        prompt_ids=tuple(prompt),
        sampling=Sampling(**fields),
        forced_prefix=tuple(forced),
        background=background,
        constraint=constraint,
        top_logprobs=top_logprobs,
        adapter=adapter,
        **more,
    )


async def say(engine: Engine, request: Generate) -> Said:
    """The response to `request`, gathered from its steps."""
    async with aclosing(engine.generate(request)) as steps:
        taken = [step async for step in steps]
    columns = ("ids", "logprobs", "versions", "forced", "top_logprobs")
    gathered = {name: tuple(value for step in taken for value in getattr(step, name)) for name in columns}
    return Said(**gathered, ended=taken[-1].ended, steps=len(taken))


async def swapped_under_load(
    engine: Engine, requests: Sequence[Generate], folders: Sequence[Path]
) -> list[list[Step]]:
    """The steps of every response. Requests are repeated until each folder's version has sampled a token."""
    responses: list[list[Step]] = []
    said: set[int] = set()
    progress = asyncio.Condition()
    swapped = asyncio.Event()

    async def respond(request: Generate) -> None:
        while not swapped.is_set():
            steps: list[Step] = []
            responses.append(steps)
            async for step in engine.generate(request):
                steps.append(step)
                said.update(step.versions)
                async with progress:
                    progress.notify_all()

    async def swap() -> None:
        for version, folder in enumerate((None, *folders)):
            if folder is not None:
                await engine.stage(version, folder)
                await engine.probe(PROBE)
                await engine.promote()
                assert engine.version == version
            async with progress:
                await progress.wait_for(lambda version=version: version in said)
        swapped.set()

    await asyncio.gather(*map(respond, requests), swap())
    return responses


@lru_cache(maxsize=8)
def plain_model(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    """The model as transformers loads it. Eager attention would round float64. Folders are written once."""
    attention = "sdpa" if dtype == torch.float64 else "eager"
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attention).eval()


@torch.inference_mode()
def plain_logits(folder: Path, ids: Any, dtype: torch.dtype = torch.float32) -> Tensor:
    """Logits of transformers' own forward without a cache, [T, V]."""
    return plain_model(folder, dtype)(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0]


def rescored(folder: Path, request: Generate, said: Said, temperature: float) -> Tensor:
    """Log-probs of the response by a plain forward at `temperature`, [T]."""
    logits_TV = plain_logits(folder, (*request.prompt_ids, *said.ids))
    start = len(request.prompt_ids) - 1
    logprobs_TV = (logits_TV[start:-1] / temperature).log_softmax(-1)
    return logprobs_TV.gather(-1, torch.tensor(said.ids)[:, None])[:, 0]

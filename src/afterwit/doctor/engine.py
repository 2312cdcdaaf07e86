"""Self-tests of the engine against the learner's own kernels: what it sampled, and what it swapped in."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from afterwit import build
from afterwit.chat_format.render import Renderer
from afterwit.config import Settings
from afterwit.doctor.finding import Finding, expect, tested
from afterwit.doctor.judge import JUDGE_REMEDY, Keep, judges
from afterwit.doctor.model import SAMPLE
from afterwit.engines.port import Engine, Generate, Step
from afterwit.judging.ability import Progress
from afterwit.judging.verdicts import is_examined
from afterwit.learning.passes import Row, probe, response_logits
from afterwit.learning.policy import Policy
from afterwit.learning.settings import LearnerSettings
from afterwit.objective.terms import at, logprobs
from afterwit.publish.publisher import BASE, check_capable, examine
from afterwit.turn import Basis, Sampling
from afterwit.weights.agreement import gap, most
from afterwit.weights.weights import widened

SAMPLING = Sampling(max_tokens=24, temperature=0.7, seed=0, ignore_eos=True)
MOVED = 1e-3
"""The standard deviation of the random change of weights in the swap's test."""


def check_engine(
    opening: Coroutine[Any, Any, Engine],
    policy: Policy,
    renderer: Renderer,
    base: Path,
    settings: Settings,
    progress: Progress,
    keep: Keep,
) -> Iterator[Finding]:
    """Every test of the engine that `opening` returns. They change `policy`."""
    with asyncio.Runner() as runner:

        def run(test: Callable[..., Coroutine[Any, Any, str]], *args: object) -> str:
            return runner.run(test(*args))

        engine = runner.run(opening)
        remedy = "engine and learner disagree about this model: do not train with it"
        yield tested("sampled log-probs", run, _rescored, engine, policy.model, renderer, remedy=remedy)
        if settings.judge.url is None:
            judge = build.judge_client(settings.judge, engine, renderer)
            if is_examined(judge):
                examination = build.examination(settings.judge, judge, engine, renderer)
                examination.progress = progress
                yield tested("judge", run, judges, examination, keep, remedy=JUDGE_REMEDY)
        remedy = "the engine does not serve what the learner writes: do not train with it"
        yield tested("swap", run, _swapped, engine, policy, base, settings.learner, remedy=remedy)
        runner.run(engine.close())


async def _rescored(engine: Engine, model: PreTrainedModel, renderer: Renderer) -> str:
    """One response of the engine, scored again by the learner's forward."""
    prompt, steps = renderer.prompt_ids(SAMPLE), list[Step]()
    async with aclosing(engine.generate(Generate(prompt_ids=prompt, sampling=SAMPLING))) as stream:
        async for step in stream:
            steps.append(step)
    ids = tuple(token for step in steps for token in step.ids)
    sampled = [value for step in steps for value in step.logprobs]
    tau = SAMPLING.temperature if engine.capabilities.basis is Basis.PROCESSED else 1.0
    with torch.no_grad():
        (logits_TV,) = response_logits(widened(model), [Row(prompt=prompt, response=ids)])
    scored_T = at(logprobs(logits_TV, tau), torch.tensor(ids, device=logits_TV.device))
    apart, limit = gap(scored_T.tolist(), sampled), most(engine.facts.dtype)
    seen = f"{len(ids)} sampled tokens re-score within {apart:.2g} nats on average"
    expect(apart <= limit, f"{seen}; at most {limit:g} is right")
    return seen


async def _swapped(engine: Engine, policy: Policy, base: Path, learner: LearnerSettings) -> str:
    """Weights that have moved by chance, written as the learner writes a version, and served."""
    dtypes = (engine.facts.dtype, learner.dtype)
    check_capable(engine.capabilities, lora_rank=learner.lora_rank, dtypes=dtypes)
    before, generator = probe(policy.model), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.masters.named.values():
            parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter), alpha=MOVED)
    policy.masters.publish()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "1"
        place.mkdir()
        policy.trained.write(place, base)
        after = probe(policy.model)
        await engine.stage(1, place)
        found = await examine(engine, after, others={BASE: before}, earlier={}, dtypes=dtypes)
    await engine.promote()
    seen = f"served log-probs are {found.apart:.2g} nats from the learner's on average"
    if (stands := found.shares.get(BASE)) is None:
        return seen
    moved = f"{stands.value:.0%} of the way from the base's to them, give or take {stands.error:.2g}"
    return f"{seen}, and are {moved}"

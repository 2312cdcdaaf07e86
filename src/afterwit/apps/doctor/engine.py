"""Self-tests of the engine against the learner's own kernels: what it sampled, and what it swapped in."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from afterwit.apps import build
from afterwit.apps.config import Settings
from afterwit.apps.doctor import judge
from afterwit.apps.doctor.finding import Finding, expect, tested
from afterwit.apps.doctor.model import SAMPLE
from afterwit.core.turn import Basis, Sampled, Sampling
from afterwit.engines.port import Engine, Generate
from afterwit.stages.publish import check_capable, probe_gap
from afterwit.wire.model_text.render import Renderer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from afterwit.learner.policy import Policy

SAMPLING = Sampling(max_tokens=24, temperature=0.7, seed=0, ignore_eos=True)
MOVED = 1e-3
"""How far the swap's test moves what trains, at random: a standard deviation."""


def check(
    opening: Coroutine[Any, Any, Engine],
    policy: Policy,
    renderer: Renderer,
    base: Path,
    *,
    settings: Settings,
) -> Iterator[Finding]:
    """Every test of the engine that `opening` returns. `policy` is moved by them."""
    model = policy.model
    with asyncio.Runner() as runner:
        engine = runner.run(opening)
        tolerance = settings.publish.tolerance_for(engine.facts.dtype, settings.learner.dtype)
        yield tested(
            "sampled log-probs",
            lambda: runner.run(_rescored(engine, model, renderer, max(tolerance, 1e-3))),
            remedy="engine and learner disagree about this model: set both their dtype to float32",
        )
        if settings.judge.url is None:
            served = build.judge_client(settings.judge, engine, renderer)
            yield judge.finding(lambda: runner.run(judge.judges(served, settings.judge)))
        yield tested(
            "swap",
            lambda: runner.run(_swapped(engine, policy, base, settings.learner.lora_rank, tolerance)),
            remedy="the engine does not serve what the learner writes: do not train with it",
        )
        runner.run(engine.close())


async def sample(engine: Engine, prompt: tuple[int, ...]) -> Sampled:
    """One response of the engine."""
    steps = []
    async with aclosing(engine.generate(Generate(prompt_ids=prompt, sampling=SAMPLING))) as stream:
        async for step in stream:
            steps.append(step)
    return Sampled(
        ids=tuple(index for step in steps for index in step.ids),
        logprobs=tuple(value for step in steps for value in step.logprobs),
        versions=tuple(value for step in steps for value in step.versions),
        forced=tuple(value for step in steps for value in step.forced),
        basis=engine.capabilities.basis,
        cache_version=steps[0].cache_version,
    )


async def _rescored(engine: Engine, model: PreTrainedModel, renderer: Renderer, tolerance: float) -> str:
    import torch

    from afterwit.learner.scoring import Row, response_logits

    prompt = renderer.prompt_ids(SAMPLE)
    sampled = await sample(engine, prompt)
    tau = SAMPLING.temperature if sampled.basis is Basis.PROCESSED else 1.0
    with torch.no_grad():
        logits_TV = response_logits(model, [Row(prompt=prompt, response=sampled.ids)])[0].float()
    ids_T = torch.tensor(sampled.ids, device=logits_TV.device)
    scored_T = torch.log_softmax(logits_TV / tau, -1).gather(-1, ids_T[:, None])[:, 0]
    gap = (scored_T.cpu() - torch.tensor(sampled.logprobs)).abs().max().item()
    said = f"{len(sampled.ids)} sampled tokens re-score within {gap:.2g} nats"
    expect(gap <= tolerance, f"{said}; at most {tolerance:g} is right")
    return said


async def _swapped(engine: Engine, policy: Policy, base: Path, lora_rank: int, tolerance: float) -> str:
    from afterwit.learner.scoring import probe

    check_capable(engine.capabilities, lora_rank=lora_rank)
    _move(policy)
    with tempfile.TemporaryDirectory() as folder:
        policy.trained.write(Path(folder), base)
        expected = probe(policy.model)
        await engine.stage(1, Path(folder))
    served = await engine.probe(expected.ids[: engine.capabilities.longest_probe])
    await engine.promote()
    gap = probe_gap(expected, served)
    said = f"served log-probs are {gap:.2g} nats from the learner's on average"
    expect(gap <= tolerance, f"{said}; at most {tolerance:g} is right")
    return said


def _move(policy: Policy) -> None:
    import torch

    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.masters.named.values():
            parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter), alpha=MOVED)
    policy.masters.publish()

"""A published model in half precision learns over an engine, and the check of each version is measured."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from afterwit.chat_format.render import Renderer
from afterwit.checkpoints.versions import Versions
from afterwit.doctor import mathematics
from afterwit.doctor.finding import require
from afterwit.engines.port import Engine
from afterwit.errors import ProbeMismatch
from afterwit.judging.hinted_prompts import Placement
from afterwit.learning.passes import Row, response_logits
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.trainer import Trainer
from afterwit.objective.settings import ObjectiveSettings
from afterwit.publish.publisher import BASE, Publisher, examine
from afterwit.version import AMPLIFIED, Probe, Version
from afterwit.weights.agreement import Share, gap, share
from afterwit.weights.weights import widened
from tests.engines.talk import Said, ask, say
from tests.fakes.adapters import noise
from tests.fakes.judged_samples import a_sample
from tests.fakes.renderers import renderer_of

TOKENS = 24
RANK = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Pupil:
    """A learner and the engine that serves what it learns."""

    engine: Engine
    trainer: Trainer
    renderer: Renderer

    @classmethod
    async def begin(cls, home: Path, model: Path, engine: Engine, *, dtype: str, rank: int = RANK) -> Pupil:
        """With its self-tests passed, as `serve` requires."""
        settings = LearnerSettings(
            dtype=dtype, device="cpu", threads=1, lora_rank=rank, measure_effects=False
        )
        versions, renderer = Versions(root=home / "versions", base=model), renderer_of(model)
        trainer = Trainer(versions, renderer, settings=settings, objective=ObjectiveSettings())
        await asyncio.to_thread(trainer.begin, now=0.0)
        await asyncio.to_thread(
            lambda: require(mathematics.check_mathematics(trainer, renderer, Placement.LAST_USER))
        )
        return cls(engine=engine, trainer=trainer, renderer=renderer)

    def publisher(self, engine: Engine | None = None) -> Publisher:
        """A publisher of the newest version to the engine, or to another one."""

        async def published(number: int) -> None:
            """Do nothing: the test runs without a store."""

        return Publisher(
            engine=engine or self.engine,
            checkpoints=self.trainer.versions,
            published=published,
            dtype=self.trainer.settings.dtype,
            keep_versions=5,
        )

    async def learn(self, first: int) -> Version:
        """One update, of two responses that the engine gave and a hint each."""
        samples = []
        for number in (first, first + 1):
            prompt = a_sample(self.renderer, number).turn.prompt_ids
            said = await say(self.engine, ask(prompt, max_tokens=TOKENS, ignore_eos=True, seed=number))
            samples.append(
                a_sample(
                    self.renderer,
                    number,
                    tokens=TOKENS,
                    hints=("Answer in at most 25 words.",),
                    ids=said.ids,
                    logprobs=said.logprobs,
                    versions=said.versions,
                    forced=said.forced,
                )
            )
        items, refused = self.trainer.build(samples)
        assert not refused
        return await asyncio.to_thread(self.trainer.train, items, [], now=1.0, progress=lambda phase: None)

    def probe(self, number: int) -> Probe:
        version = self.trainer.versions.get(number)
        assert version is not None
        return version.probe

    def folder(self, number: int) -> Path:
        return self.trainer.versions.weights(number)

    async def refused(self, number: int, folder: Path) -> str:
        """Why the weights in a folder do not pass for a version's."""
        await self.engine.stage(number, folder)
        others = {BASE: self.probe(0), "the version before": self.probe(number - 1)}
        dtypes = (self.engine.facts.dtype, self.trainer.settings.dtype)
        with pytest.raises(ProbeMismatch) as caught:
            await examine(self.engine, self.probe(number), others=others, earlier={}, dtypes=dtypes)
        await self.engine.discard()
        return str(caught.value)

    async def shares(self, number: int, folders: Mapping[str, Path]) -> dict[str, dict[str, Share]]:
        """The place of each folder's weights between the base's, or the version's before, and a version's."""
        found = {}
        right = self.probe(number)
        for name, folder in folders.items():
            await self.engine.stage(number, folder)
            said = await self.engine.probe(right.ids, times=AMPLIFIED)
            await self.engine.discard()
            found[name] = {
                "base": share(said, right.amplified, self.probe(0).amplified),
                "before": share(said, right.amplified, self.probe(number - 1).amplified),
            }
        return found

    def rescored(self, prompt: tuple[int, ...], said: Said) -> float:
        """Nats between the log-probs that the engine returned and those of the learner's own weights."""
        import torch

        model = widened(self.trainer.policy().model)
        with torch.no_grad():
            (logits_TV,) = response_logits(model, [Row(prompt=prompt, response=said.ids)])
        ids = torch.tensor(said.ids)[:, None]
        return gap(logits_TV.double().log_softmax(-1).gather(-1, ids)[:, 0].tolist(), said.logprobs)


class Deaf:
    """An engine that goes on with some weights, whatever it is given."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self._engine, self._folder = engine, folder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def stage(self, version: int, folder: Path, *, adapter: str) -> None:
        await self._engine.stage(version, self._folder, adapter=adapter)


async def learns_and_tells(home: Path, model: Path, engine: Engine, *, dtype: str) -> None:
    """Two updates are learned and served, and nothing else passes for them."""
    pupil = await Pupil.begin(home, model, engine, dtype=dtype)
    publisher = pupil.publisher()
    await pupil.learn(2)
    assert await publisher.step()
    assert engine.version == 1
    await pupil.learn(4)
    other = noise(home / "versions" / "other", model, seed=1, rank=RANK, alpha=0.02)
    folders = {"right": pupil.folder(2), "the base": model, "before": pupil.folder(1), "other": other}
    found = await pupil.shares(2, folders)
    for name, stands in found.items():
        words = ", ".join(f"{of} {s.value:.2f} +- {s.error:.2f}" for of, s in stands.items())
        print(f"{engine.facts.name} {engine.facts.dtype}, learner {dtype}: {name}: {words}")
    assert all(s.distinguishes and 0.75 < s.value < 1.25 for s in found["right"].values())
    assert abs(found["the base"]["base"].value) < 0.25
    assert abs(found["before"]["before"].value) < 0.25
    assert abs(found["other"]["base"].value) < 0.25
    for name in ("the base", "before", "other"):
        said = await pupil.refused(2, folders[name])
        assert "other weights" in said or (engine.facts.dtype == dtype == "float32" and "on average" in said)
    assert await publisher.step()
    assert engine.version == 2
    prompt = a_sample(pupil.renderer, 9).turn.prompt_ids
    said = await say(engine, ask(prompt, max_tokens=TOKENS, ignore_eos=True, seed=0))
    assert set(said.versions) == {2}
    assert pupil.rescored(prompt, said) < 0.15

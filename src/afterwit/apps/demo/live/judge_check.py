"""The judge of a run on cases with names and wordings that it has never seen."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from afterwit.apps import build
from afterwit.apps.config import Settings
from afterwit.apps.demo.judge import accuracy
from afterwit.apps.demo.world import World
from afterwit.core.message import Message
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.wire.judge.short_prompts import ShortPrompts
from afterwit.wire.model_text.render import Renderer

CASES = 100


def judge_accuracy(settings: Settings, world: World, *, seed: int, rules: bool) -> dict[str, float]:
    """The share of right rewards and right hints by kind of case, and of both together as `all`."""
    answers = (lambda prompts: [world.judge(prompt) for prompt in prompts]) if rules else _Model(settings)
    found = accuracy(answers, world, world.cases("fresh", CASES, seed))
    return found | {"all": (found["reward all"] + found["hint all"]) / 2}


class _Model:
    """The demo's own model, asked as the judge stage asks it. A server of the run may be gone by now."""

    def __init__(self, settings: Settings) -> None:
        assert settings.model is not None
        self._settings, self._folder = settings, Path(settings.model)

    def __call__(self, prompts: Sequence[list[dict[str, str]]]) -> list[str]:
        return asyncio.run(self._answers(prompts))

    async def _answers(self, prompts: Sequence[list[dict[str, str]]]) -> list[str]:
        embedded = self._settings.model_copy(update={"engine": EmbeddedSettings()})
        engine, judge = await build.engine_of(embedded, self._folder), self._settings.judge
        client = build.judge_client(judge, engine, Renderer.load(self._folder))
        asks = (
            client.ask(
                tuple(map(Message.from_dict, prompt)),
                temperature=judge.temperature,
                max_tokens=ShortPrompts().max_tokens,
                seed=index,
            )
            for index, prompt in enumerate(prompts)
        )
        try:
            return [answer.words for answer in await asyncio.gather(*asks)]
        finally:
            await engine.close()

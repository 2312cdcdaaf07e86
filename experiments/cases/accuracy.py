"""How often a demo's judge is right on turns with known truth."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

from afterwit import build
from afterwit.chat_format.render import Renderer
from afterwit.config import Settings
from afterwit.demo.world import World
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.kinds import open_engine
from afterwit.judging.prompts import ShortPrompts, short_prompts
from afterwit.judging.voting import Answer, evaluation_vote, hint_vote
from afterwit.turn import Message
from experiments.cases import chat, tools
from experiments.cases.case import LabelledCase

CASES = 100
"""Held-out cases that the judge's accuracy is measured on."""
OF_WORLD = {"chat": chat.cases, "tools": tools.cases}
AskAll = Callable[[Sequence[list[dict[str, str]]]], Sequence[str]]
"""Prompts in, the judge's words out, in order."""


def accuracy(answers: AskAll, world: World, judged: Sequence[LabelledCase]) -> dict[str, float]:
    """The share of right rewards and of right hints, by kind of case and in all.

    A hint is right if it speaks of exactly the broken rules; if none was broken, no hint is right.
    """
    asked = [short_prompts(case.request, case.response, case.following) for case in judged]
    rewards, hints = answers([pair[0] for pair in asked]), answers([pair[1] for pair in asked])
    right: defaultdict[str, list[bool]] = defaultdict(list)
    for case, said, hinted in zip(judged, rewards, hints, strict=True):
        vote = hint_vote(
            Answer(words=hinted), [message["content"] for message in case.following], quote_words=8
        )
        named = world.rules_named_in(vote.hint) if vote.hint is not None else set()
        is_valid = vote.hint is not None or vote.value == -1
        for kind in (case.kind, "all"):
            right[f"reward {kind}"].append(evaluation_vote(Answer(words=said)).value == case.reward)
            right[f"hint {kind}"].append(is_valid and named == set(case.rules))
    return {name: fmean(answers) for name, answers in sorted(right.items())}


def judge_accuracy(settings: Settings, world: World, *, seed: int) -> float:
    """The share of right rewards and hints of the demo's own model, asked as the judge stage asks it."""
    found = accuracy(
        lambda prompts: asyncio.run(_answers(settings, world.folder / "model", prompts)),
        world,
        OF_WORLD[world.name]("fresh", CASES, seed),
    )
    return (found["reward all"] + found["hint all"]) / 2


async def _answers(settings: Settings, folder: Path, prompts: Sequence[list[dict[str, str]]]) -> list[str]:
    judge = settings.judge
    engine = await open_engine(folder, EmbeddedSettings())
    client = build.judge_client(judge, engine, Renderer.load(folder))
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

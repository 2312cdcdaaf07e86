"""Examples for a base model: conversations, among them copying exercises and a judge's questions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from afterwit.demo.words import NOUNS
from afterwit.demo.world import Message
from afterwit.judging import prompts as judge_prompts
from experiments.cases.case import text_message
from experiments.pretrain.noise import with_noise

NOISE, EVALUATIONS = 0.25, 0.4
SPLICE = "\n\n[user's hint / instruction]\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A conversation to learn from; every assistant message in it is a target, but for mistakes."""

    messages: list[Message]
    mistakes: frozenset[int] = frozenset()
    """The assistant's messages, counted from 0, that are not targets."""
    tools: Sequence[Mapping[str, Any]] = ()


def copying(rng: Random) -> Example:
    """An exercise in repeating a message: names, quoted words and endings in no order."""
    pieces = [
        rng.choice(("-{}", "-{}", ".{}", ' "{}"', " {}")).format(rng.choice(NOUNS))
        for _ in range(rng.randint(4, 10))
    ]
    text = "".join(pieces).strip()
    return Example(messages=[text_message("user", text), text_message("assistant", text)])


def judged(
    request: str, response: Message, following: list[Message], reward: int, hint: str | None, rng: Random
) -> Example:
    """One of the judge's two questions about a turn, with its true answer."""
    evaluation, hinting = judge_prompts.short_prompts(with_noise(request, NOISE, rng), response, following)
    if rng.random() < EVALUATIONS:
        return Example(messages=[*evaluation, text_message("assistant", rf"\boxed{{{reward}}}")])
    answer = rf"\boxed{{1}} [HINT_START]{hint}[HINT_END]" if hint else r"\boxed{-1}"
    return Example(messages=[*hinting, text_message("assistant", answer)])

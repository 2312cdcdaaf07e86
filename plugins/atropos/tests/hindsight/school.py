"""Hindsight over an engine and a judge of the test's, without waiting."""

from __future__ import annotations

import asyncio
from typing import Any

from afterwit.engines.port import Engine
from afterwit.judging.hinted_prompts import Placement, Rendering
from afterwit.judging.settings import JudgeSettings
from afterwit.judging.verdicts import Verdicts
from afterwit.turn import Conversation
from afterwit.worker import BackOff
from afterwit_atropos.hindsight import Hindsight, HindsightSettings
from tests.fakes.judge import FakeJudge
from tests.fakes.rollouts import HINT

BACK_OFF = BackOff(base_s=1.0, max_s=8.0, random=lambda: 0.0)
SAYS_HINT = rf"\boxed{{1}}[HINT_START]{HINT}[HINT_END]"


class Prompts:
    """Implements Rendering for `a_rollout`: a plain prompt is the turn's own, a hint adds ids to its end."""

    def __init__(self, rollout: Any) -> None:
        self._own = {turn.conversation.messages: turn.prompt_ids for turn in rollout.in_order}

    def prompt_ids(self, conversation: Conversation) -> tuple[int, ...]:
        if conversation.messages in self._own:
            return self._own[conversation.messages]
        said = "".join(message.content or "" for message in conversation.messages)
        plain = next(
            ids for messages, ids in self._own.items() if len(messages) == len(conversation.messages)
        )
        return (*plain, *(301 + ord(letter) % 100 for letter in said.partition("instruction]")[2]))


async def sleep(seconds: float) -> None:
    await asyncio.sleep(0)


def hindsight(
    engine: Engine,
    rendering: Rendering,
    judge: FakeJudge | None = None,
    *,
    placement: Placement = Placement.LAST_USER,
    temperature: float = 1.0,
    judging: dict[str, Any] | None = None,
    **settings: Any,
) -> Hindsight:
    """A judge that always has the same hint by default."""
    teaching = HindsightSettings(**{"top_k": 5, "unscored_after": 1000} | settings)
    rules = JudgeSettings(**{"attempts": 2, "placement": placement} | (judging or {}))
    verdicts = Verdicts(
        judge or FakeJudge(lambda messages: SAYS_HINT),
        rules,
        teaching.reads,
        back_off=BACK_OFF,
        sleep=sleep,
    )
    return Hindsight(
        engine,
        rendering,
        verdicts,
        teaching,
        placement=placement,
        temperature=temperature,
        back_off=BACK_OFF,
        sleep=sleep,
    )

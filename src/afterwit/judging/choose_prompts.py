"""How the judge is asked: one entry of a table for each value of `judge.prompts`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from afterwit.judging.questions import JudgePrompts
    from afterwit.judging.settings import JudgeSettings


def _full(settings: JudgeSettings) -> JudgePrompts:
    from afterwit.judging.prompts import FullPrompts

    return FullPrompts(
        max_tokens=settings.max_tokens,
        context_chars=settings.context_chars,
        tools_chars=settings.tools_chars,
        response_chars=settings.response_chars,
        next_state_chars=settings.next_state_chars,
    )


def _short(_: JudgeSettings) -> JudgePrompts:
    from afterwit.judging.short_prompts import ShortPrompts

    return ShortPrompts()


PROMPTS: Mapping[str, Callable[[JudgeSettings], JudgePrompts]] = {"full": _full, "short": _short}


def judge_prompts(settings: JudgeSettings) -> JudgePrompts:
    """The prompts that `judge.prompts` names."""
    return PROMPTS[settings.prompts](settings)

"""`judge.client = "keyword"`: a judge that needs no model. It looks for words in what followed."""

from __future__ import annotations

from collections.abc import Sequence

from afterwit.api.judging import Answer, JudgeSettings
from afterwit.api.turns import Message


class KeywordJudge:
    """Votes -1 if anything that followed says "wrong" or "error", else 1. It writes no hint."""

    async def ask(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int
    ) -> Answer:
        shown = (messages[-1].content or "").lower()
        bad = "wrong" in shown or "error" in shown
        return Answer(words=rf"\boxed{{{-1 if bad else 1}}}", finished=True)


def judge(settings: JudgeSettings) -> KeywordJudge:
    """The judge under `[judge]`."""
    return KeywordJudge()

"""One question, put to a judge."""

from __future__ import annotations

from typing import Any

from afterwit.judging.verdicts import JudgeClient
from afterwit.judging.voting import Answer
from afterwit.turn import Message

QUESTION = (Message(role="system", content="Judge."), Message(role="user", content="Was it good?"))


async def ask(judge: JudgeClient, **changes: Any) -> Answer:
    return await judge.ask(QUESTION, **{"temperature": 0.6, "max_tokens": 32, "seed": 7} | changes)

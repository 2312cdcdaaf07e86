"""Who answers the judge's questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from afterwit.core.judging import Answer
from afterwit.core.message import Message


class JudgeClient(Protocol):
    """Asks the judge once."""

    async def ask(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int
    ) -> Answer:
        """What it said. Raises JudgeUnavailable (it may answer later) or JudgeRefused (it will not)."""

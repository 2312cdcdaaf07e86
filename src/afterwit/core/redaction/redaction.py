"""Which secrets are looked for, in texts and in turns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from afterwit.core.message import Message
from afterwit.core.redaction.patterns import PATTERNS

Kind = Literal["keys", "cards", "emails"]
OWN = "own"
"""What is found by a pattern of the user's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """What never trains, and is replaced in what is exported as training data."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    kinds: tuple[Kind, ...] = ("keys", "cards", "emails")
    """What is looked for: API keys and tokens, card numbers, e-mail addresses. A response that holds one does
    not train, so leave out `emails` if your agents write mail."""
    patterns: tuple[str, ...] = ()
    """Regular expressions (Python's) of your own secrets, such as `"ACME-[0-9]{8}"`. They see every response:
    bound their repetitions."""

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in PATTERNS:
                raise ValueError(f"kinds has {kind!r}, which is none of {', '.join(PATTERNS)}")
        for pattern in self.patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(
                    f"patterns has {pattern!r}, which is no regular expression: {error}"
                ) from error

    def found(self, texts: Iterable[str]) -> bool:
        """Whether any of these texts holds a secret."""
        return any(
            is_one(match.group())
            for text in texts
            for _, pattern, is_one in self._wanted()
            for match in pattern.finditer(text)
        )

    def in_message(self, message: Message) -> bool:
        """Whether a message holds a secret: in its text, its reasoning or its calls."""
        return self.found(texts_of(message))

    def redacted(self, text: str) -> str:
        """The text with a mark in the place of each secret, such as `[redacted: keys]`."""
        for kind, pattern, is_one in self._wanted():

            def mark(match: re.Match[str], kind: str = kind, is_one: Callable[[str], bool] = is_one) -> str:
                return f"[redacted: {kind}]" if is_one(match.group()) else match.group()

            text = pattern.sub(mark, text)
        return text

    def redacted_json(self, value: Any) -> Any:
        """JSON with every text redacted; names of fields stay."""
        if isinstance(value, str):
            return self.redacted(value)
        if isinstance(value, dict):
            return {name: self.redacted_json(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.redacted_json(item) for item in value]
        return value

    def _wanted(self) -> Iterator[tuple[str, re.Pattern[str], Callable[[str], bool]]]:
        for kind in self.kinds:
            yield kind, *PATTERNS[kind]
        for pattern in self.patterns:
            yield OWN, re.compile(pattern), bool


def texts_of(message: Message) -> Iterator[str]:
    """Everything that a message says."""
    yield message.content or ""
    yield message.reasoning or ""
    for call in message.tool_calls:
        yield call.arguments

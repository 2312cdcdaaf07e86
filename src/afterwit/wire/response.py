"""A growing response, whatever the client's dialect: what a dialect's encoder turns into bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from afterwit.core import ids
from afterwit.core.message import Message
from afterwit.core.turn import Finish


@dataclass(slots=True, kw_only=True)
class TextDelta:
    """The next piece of the content. Not frozen: one is made for every token, in half the time."""

    text: str


@dataclass(slots=True, kw_only=True)
class ReasoningDelta:
    """The next piece of the reasoning. Not frozen, as `TextDelta`."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCall:
    """One complete tool call; `arguments` is a JSON object as the model wrote it."""

    index: int
    """Its place among the calls of the response."""
    name: str
    arguments: str


ResponseEvent = TextDelta | ReasoningDelta | ParsedCall


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """The log-prob of one token."""

    text: str
    logprob: float
    top: Sequence[TokenLogprob] = ()
    """The most likely tokens at its place, falling; empty unless the client asked for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens, as the engine counted them."""

    prompt: int
    completion: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseHead:
    """What is known of a response before its first token."""

    turn: str
    """The turn of the first choice. The response id ends with it."""
    created: int
    """Whole seconds since the epoch."""
    model: str
    """As the client asked for it."""
    prompt_tokens: int

    def call_id(self, choice: int, index: int) -> str:
        """The id of tool call `index` of a choice."""
        return ids.call_id(ids.choice_turn(self.turn, choice), index)


@dataclass(slots=True, kw_only=True)
class ChoiceDelta:
    """What one engine step added to one choice. Not frozen, as `TextDelta`."""

    choice: int
    events: Sequence[ResponseEvent]
    version: int
    """The weight version that sampled the latest token."""
    logprobs: Sequence[TokenLogprob] = ()
    """Of the tokens behind `events`; empty unless the client asked for log-probs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceEnd:
    """A choice is complete and in the store."""

    choice: int
    message: Message
    """The whole choice: what its deltas add up to."""
    finish: Finish
    stop: str | None
    """The stop string that ended it; None if none did."""
    version: int
    logprobs: Sequence[TokenLogprob] = ()
    """Those that no delta carried."""

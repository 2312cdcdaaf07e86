"""A growing response in the common form, which a dialect's encoder turns into bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from afterwit.turn import Finish, Message, call_id, choice_turn

PIECE = 64
"""Characters of a tool call's arguments in one event of a stream."""


@dataclass(slots=True, kw_only=True)
class TextDelta:
    """More content. Not frozen: one is made for every token, in half the time."""

    text: str


@dataclass(slots=True, kw_only=True)
class ReasoningDelta:
    """More reasoning. Not frozen, as `TextDelta`."""

    text: str


@dataclass(slots=True, kw_only=True)
class CallDelta:
    """More arguments of a call that is still being written. The first one begins the call.

    Only a `ParsedCall` completes it: if the end cannot be read, the text becomes content. The arguments are
    never complete JSON until then, so that no client executes such a call. Not frozen, as `TextDelta`.
    """

    index: int
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCall:
    """One complete tool call; `arguments` is a JSON object as the model wrote it.

    They begin with the arguments of the `CallDelta`s of this index.
    """

    index: int
    """Its place among the calls that the response began."""
    name: str
    arguments: str


ResponseEvent = TextDelta | ReasoningDelta | CallDelta | ParsedCall


class SentCalls:
    """How many characters of the arguments of one choice's open calls were sent."""

    def __init__(self) -> None:
        self._sent: dict[int, int] = {}

    def add(self, event: CallDelta | ParsedCall) -> tuple[bool, str]:
        """Whether the event begins its call, and the arguments to send now."""
        sent = self._sent.pop(event.index, None)
        if isinstance(event, ParsedCall):
            return sent is None, event.arguments[sent or 0 :]
        self._sent[event.index] = (sent or 0) + len(event.arguments)
        return sent is None, event.arguments


def in_pieces(arguments: str) -> Iterator[str]:
    return (arguments[start : start + PIECE] for start in range(0, len(arguments), PIECE))


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """The log-prob of one token."""

    text: str
    logprob: float
    top: Sequence[TokenLogprob] = ()
    """The most likely tokens at its position, most likely first; empty unless the client asked for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens, as the engine counted them."""

    prompt: int
    completion: int
    cached: int = 0
    """Tokens of the prompt that the engine had read before; 0 also if it does not report them."""
    reasoning: int = 0
    """Tokens of the completion that are reasoning, give or take a step of the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseHead:
    """The facts that are known before the first token."""

    turn: str
    """The turn of the first choice. The response id ends with it."""
    created: int
    """Whole seconds since the epoch."""
    model: str
    """As the client asked for it."""
    prompt_tokens: int

    def call_id(self, choice: int, index: int) -> str:
        """The id of tool call `index` of a choice."""
        return call_id(choice_turn(self.turn, choice), index)


@dataclass(slots=True, kw_only=True)
class ChoiceDelta:
    """One engine step of one choice. Not frozen, as `TextDelta`."""

    choice: int
    events: Sequence[ResponseEvent]
    version: int
    """The weight version that sampled the latest token."""
    logprobs: Sequence[TokenLogprob] = ()
    """Log-probs of the tokens of `events`; empty unless the client asked for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceEnd:
    """A choice is complete and in the store."""

    choice: int
    message: Message
    """The whole choice, the sum of its deltas."""
    finish: Finish
    stop: str | None
    """The stop string that ended it; None if none did."""
    version: int
    logprobs: Sequence[TokenLogprob] = ()
    """Log-probs that were in no delta."""
    ended: float | None = None
    """Seconds since the epoch; None: unknown."""

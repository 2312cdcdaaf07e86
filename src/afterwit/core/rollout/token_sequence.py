"""The token sequences of a rollout: its turns end to end, each at the place where it was captured. Pure.

A turn whose prompt is everything before it continues its sequence. One whose prompt is not (the template
drops earlier reasoning, or writes a call in other words than the model did) begins another: nothing is ever
searched for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from afterwit.core.turn import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The sampled ids of one turn, [begin, end) of its sequence; the id that ended the turn is among them."""

    turn: Turn
    begin: int
    end: int

    def __post_init__(self) -> None:
        if self.end - self.begin != len(self.turn.sampled.ids):
            length = self.end - self.begin
            raise ValueError(f"turn {self.turn.id}: {len(self.turn.sampled.ids)} ids, but a span of {length}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSequence:
    """The ids that one forward pass reads, and which of them the policy sampled."""

    ids: tuple[int, ...]
    spans: tuple[Span, ...]
    """In order; between them is what templates and tools wrote."""

    def __post_init__(self) -> None:
        at = 0
        for span in self.spans:
            if span.begin < at:
                raise ValueError(f"the span of turn {span.turn.id} begins at {span.begin}, before {at}")
            if self.ids[: span.begin] != span.turn.prompt_ids:
                raise ValueError(f"turn {span.turn.id} was sampled after another prompt than its sequence's")
            if self.ids[span.begin : span.end] != span.turn.sampled.ids:
                raise ValueError(f"turn {span.turn.id} sampled other ids than those of its span")
            at = span.end

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def mask(self) -> tuple[bool, ...]:
        """Whether a token may be in a loss: the policy sampled it, and nothing forced it."""
        return tuple(logprob is not None for logprob in self.logprobs)

    @property
    def logprobs(self) -> tuple[float | None, ...]:
        """pi_b of every token that may be in a loss; None for the others."""
        values: list[float | None] = [None] * len(self.ids)
        for span in self.spans:
            sampled = span.turn.sampled
            for at, logprob, forced in zip(
                range(span.begin, span.end), sampled.logprobs, sampled.forced, strict=True
            ):
                values[at] = None if forced else logprob
        return tuple(values)


def sequences(turns: Iterable[Turn]) -> tuple[TokenSequence, ...]:
    """The turns of a rollout, in order, in as few sequences as their prompts allow."""
    found: list[TokenSequence] = []
    ids: tuple[int, ...] = ()
    spans: list[Span] = []
    for turn in turns:
        prompt = turn.prompt_ids
        if spans and prompt[: len(ids)] != ids:
            found.append(TokenSequence(ids=ids, spans=tuple(spans)))
            spans = []
        ids = (*prompt, *turn.sampled.ids)
        spans.append(Span(turn=turn, begin=len(prompt), end=len(ids)))
    if spans:
        found.append(TokenSequence(ids=ids, spans=tuple(spans)))
    return tuple(found)

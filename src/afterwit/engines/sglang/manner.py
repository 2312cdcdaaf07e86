"""How an SGLang server wants to be asked, and answers: it depends on how it was started."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How this server wants to be asked, and answers."""

    tokenizer: str
    """Where it read its tokenizer from: weights come and go, this stays."""
    ends: frozenset[int]
    """The model's own end ids, at which it stops if it is not told to ignore them."""
    last: int
    """The last id of the vocabulary: the server scores it in a prompt, and calls it 0 there."""
    incremental: bool
    """Each event of a stream holds what is new; else, all so far."""
    background: int | None
    """The priority of requests in the background, where people's have 0; None: it takes no priorities."""

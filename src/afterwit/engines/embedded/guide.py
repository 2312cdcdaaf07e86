"""What one response may say next: anything in its reasoning and calls, else JSON that its schema allows.

It may not end inside its reasoning: nothing would be left of the form that was asked for.
"""

from __future__ import annotations

from concurrent.futures import Future
from enum import Enum, auto

import torch
from torch import Tensor

from afterwit.core.errors import RequestRefused
from afterwit.engines.embedded.grammar import Grammar, Grammars
from afterwit.engines.port import Constraint

LONGEST_MARK = 24
"""Tokens that the end of the reasoning takes at most."""
MOST_SPACES = 2
"""Tokens of white space between the reasoning and the JSON: models are trained to write some there."""


class _State(Enum):
    REASONING = auto()
    """Free until the reasoning ends, but for the ids that end the response."""
    START = auto()
    """JSON begins here, or a mark that makes the response free."""
    JSON = auto()
    FREE = auto()


class Guide:
    """Follows one response. It works out each mask in a thread of its own, beside the model's forward.

    Used by the worker: `mask` before a token is drawn, `accept` behind it.
    """

    def __init__(self, constraint: Constraint, grammars: Grammars) -> None:
        """Raises RequestRefused for a schema that cannot be followed. It may take long."""
        self._grammar: Grammar = grammars.compile(constraint)
        self._grammars = grammars
        self._end = constraint.starts_after
        """What ends the reasoning."""
        self._state = _State.REASONING if self._end else _State.START
        self._reasoned: list[int] = []
        """The latest ids of the reasoning."""
        self._spaces = 0
        """Tokens of white space that may come before the JSON."""
        self._at = 0
        """How many ids of a mark have come."""
        openings = [*((begin, "") for begin in constraint.call_openings), *constraint.reasoning]
        marks = [(self._ids(begin), end) for begin, end in openings]
        self._marks = [(ids, end) for ids, end in marks if not self._grammar.accepts(ids[0])]
        """What the response may begin with, each with what ends the reasoning behind it; "": it is free."""
        self._mask: Future[Tensor | None] = grammars.followers.submit(self._allowed)
        self.refusal: RequestRefused | None = None
        """Why the response cannot go on: its schema takes too much work from here."""

    @property
    def awaited(self) -> Future[Tensor | None] | None:
        """The mask that is being worked out; None: `mask` answers at once."""
        return None if self._mask.done() else self._mask

    def mask(self) -> Tensor | None:
        """Whether each id may come next, [V]; None: all may, and so after a refusal."""
        try:
            return self._mask.result()
        except RequestRefused as error:
            self.refusal = error
            return None

    @property
    def masks(self) -> bool:
        """Whether the token to draw is under a mask that chooses words: the one of the reasoning does not."""
        return self.mask() is not None and self._state is not _State.REASONING

    def accept(self, token: int) -> None:
        """Go on behind a drawn token."""
        if self._state is not _State.FREE:
            self._mask = self._grammars.followers.submit(self._after, token)

    def _after(self, token: int) -> Tensor | None:
        match self._state:
            case _State.REASONING:
                self._reason(token)
            case _State.START:
                self._start(token)
            case _State.JSON:
                self._grammar.accept(token)
        return self._allowed()

    def _reason(self, token: int) -> None:
        self._reasoned = [*self._reasoned, token][-LONGEST_MARK:]
        text = self._grammars.tokenizer.decode(self._reasoned, skip_special_tokens=False)
        if self._end in text:
            self._state, self._spaces, self._at = _State.START, MOST_SPACES, 0
            self._marks = [(ids, end) for ids, end in self._marks if not end]

    def _start(self, token: int) -> None:
        begun = [(ids, end) for ids, end in self._marks if ids[self._at] == token]
        if begun:
            self._marks, self._at = begun, self._at + 1
            self._open(next((end for ids, end in begun if len(ids) == self._at), None))
        elif self._spaces and token in self._grammars.space_ids:
            self._spaces -= 1
        else:
            self._state = _State.JSON
            self._grammar.accept(token)

    def _open(self, end: str | None) -> None:
        """A mark is complete, unless there is no end: go on behind it."""
        if end is not None:
            self._state, self._end = (_State.REASONING if end else _State.FREE), end

    def _allowed(self) -> Tensor | None:
        if self._state is _State.FREE:
            return None
        if self._state is _State.REASONING:
            return self._grammars.all_but_ends_V
        if self._state is _State.JSON:
            return self._grammar.allowed()
        allowed_V = torch.zeros_like(self._grammar.allowed()) if self._at else self._grammar.allowed()
        allowed_V[[ids[self._at] for ids, _ in self._marks]] = True
        if self._spaces and not self._at:
            allowed_V[self._grammars.space_ids] = True
        return allowed_V

    def _ids(self, mark: str) -> list[int]:
        ids: list[int] = self._grammars.tokenizer.encode(mark, add_special_tokens=False).ids
        return ids

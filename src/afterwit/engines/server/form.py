"""A response whose text has a form: which part of it the server keeps to the schema. No I/O.

Reasoning and tool calls are free. A server keeps a whole answer to a schema, or none of it, so the parts are
asked for one after another, each behind what was said before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

import jsonschema_rs

from afterwit.core.errors import RequestRefused
from afterwit.engines.port import Constraint
from afterwit.engines.server.server import NOTHING, Ask, Piece

LONGEST_MARK = 24
"""Tokens that the end of the reasoning takes at most."""
MOST_SPACES = 2
"""Tokens of white space before the JSON or a mark."""
WHITE_SPACE = r"[ \t\r\n]{1,40}"
"""Between two marks of JSON. Without a limit a small model may write white space for ever."""
OPTIONS = "x-guidance"
"""The key of a schema that sets options of the grammar library. A client's own is left out."""
BARRED = -100.0
LITERALS = ("true", "false", "null")
TextOf = Callable[[Sequence[int]], str]


class _State(Enum):
    REASONING = auto()
    """Free until the reasoning ends. It may not end the response: nothing would be left of the form."""
    START = auto()
    """Free for a look: a mark makes the response go on freely, anything else is dropped for JSON."""
    JSON = auto()
    """Kept to the schema, and held back until it is whole: a server cannot go on from the middle."""
    FREE = auto()


@dataclass(frozen=True, slots=True)
class Taken:
    """What a piece adds to the response."""

    piece: Piece
    kept: bool
    """The server kept it to the schema."""


class Form:
    """Follows one response: `ask` says how its next part is asked for, `take` what is said of an answer."""

    def __init__(self, constraint: Constraint, text_of: TextOf, end_ids: frozenset[int]) -> None:
        """Raises RequestRefused for what is no schema."""
        self._schema = _schema(constraint)
        self._text_of, self._bars = text_of, tuple((token, BARRED) for token in sorted(end_ids))
        self._end = constraint.starts_after
        openings = [*((begin, "") for begin in constraint.call_openings), *constraint.reasoning]
        self._marks = [(begin, end) for begin, end in openings if begin and not begins_json(begin)]
        """What the response may begin with, each with what ends the reasoning behind it; "": it is free."""
        self._state = _State.REASONING if self._end else self._start()
        self._reasoned: tuple[int, ...] = ()
        self._held = NOTHING
        self.turns = False
        """The rest must be asked for anew: another part begins."""

    @property
    def holds(self) -> int:
        """Ids that were sampled and are not part of the response yet."""
        return len(self._held.ids)

    def ask(self, ask: Ask) -> Ask:
        """The ask for what comes next, behind all that `take` has given."""
        self.turns, self._held = False, NOTHING
        if self._state is _State.JSON:
            return replace(ask, schema=self._schema)
        if self._state is _State.REASONING:
            bias = (*ask.sampling.logit_bias, *self._bars)
            return replace(ask, sampling=replace(ask.sampling, logit_bias=bias))
        return ask

    def take(self, piece: Piece) -> Taken:
        """What a piece adds; nothing while it is held back. It may say behind it that the form `turns`."""
        match self._state:
            case _State.REASONING:
                return Taken(self._reason(piece), False)
            case _State.START:
                return Taken(self._look(piece), False)
            case _State.JSON:
                self._held += piece
                whole = self._held if piece.ended in ("stop", "length") else NOTHING
                return Taken(whole, True)
        return Taken(piece, False)

    def _start(self) -> _State:
        return _State.START if self._marks else _State.JSON

    def _reason(self, piece: Piece) -> Piece:
        """Up to the end of the reasoning."""
        for count, token in enumerate(piece.ids, 1):
            self._reasoned = (*self._reasoned, token)[-LONGEST_MARK:]
            if self._end in self._text_of(self._reasoned):
                self._marks = [(begin, end) for begin, end in self._marks if not end]
                self._state, self.turns = self._start(), True
                return replace(piece.first(count), ended=None)
        return piece

    def _look(self, piece: Piece) -> Piece:
        """All that came, once it is a mark."""
        before, self._held = self.holds, self._held + piece
        for count in range(before + 1, self.holds + 1):
            said = self._text_of(self._held.ids[:count]).lstrip()
            found = next((end for begin, end in self._marks if said.startswith(begin)), None)
            if found == "":
                held, self._held, self._state = self._held, NOTHING, _State.FREE
                return held
            if found is not None:
                self._state, self._end, self._reasoned, self.turns = _State.REASONING, found, (), True
                return replace(self._held.first(count), ended=None)
            if (not said and count > MOST_SPACES) or not any(
                begin.startswith(said) for begin, _ in self._marks
            ):
                return self._drop()
        return self._drop() if piece.ended else NOTHING

    def _drop(self) -> Piece:
        self._state, self._held, self.turns = _State.JSON, NOTHING, True
        return NOTHING


def begins_json(mark: str) -> bool:
    """Whether JSON may begin like a mark, so that the mark says nothing about what follows."""
    mark = mark.lstrip()
    if mark.startswith("["):
        rest = mark[1:].lstrip()
        return not rest or rest.startswith("]") or begins_json(rest)
    literal = any(mark.startswith(word) or word.startswith(mark) for word in LITERALS)
    return literal or mark[0] in '{"-0123456789'


def _schema(constraint: Constraint) -> str:
    """The schema with our options. Servers whose library knows none of them ignore them."""
    fields = json.loads(constraint.schema)
    fields.pop(OPTIONS, None)
    try:
        jsonschema_rs.meta.validate(fields)
    except (jsonschema_rs.ValidationError, ValueError) as error:
        words = str(getattr(error, "message", error))[:200]
        raise RequestRefused(f"The schema cannot be followed: {words}", field="constraint") from error
    options = {"whitespace_pattern": WHITE_SPACE, "lenient": constraint.lenient}
    return json.dumps({**fields, OPTIONS: options})

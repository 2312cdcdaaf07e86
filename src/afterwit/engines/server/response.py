"""How far a response has come: what it has said, when it ends, what is left to ask for. No I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from math import inf, isfinite

import jsonschema_rs

from afterwit.engines.port import Constraint, Facts, Generate, Step, TopLogprobs
from afterwit.engines.server.server import CUT, NOTHING, Ask, Piece, Place
from afterwit.errors import EngineError, RequestRefused

SEEDS = 2**31
"""Servers take 32 bits with a sign, or more."""


class ServedResponse:
    """A request and its response so far.

    A response that was interrupted goes on: what it has said is then part of the prompt, as are ids that it
    must begin with. Penalties no longer count those ids, and a seed draws other ids than it would have.
    """

    def __init__(self, request: Generate, facts: Facts, text_of: TextOf) -> None:
        """The request fits the model. RequestRefused for a form that cannot be followed."""
        self._request = request
        sampling = request.sampling
        self._limit = min(sampling.max_tokens, facts.context_length - len(request.prompt_ids))
        self._ends = frozenset(sampling.stop_ids) | (frozenset() if sampling.ignore_eos else facts.end_ids)
        self._vocabulary = facts.vocabulary
        self._said: list[int] = []
        constraint = request.constraint
        self._form = None if constraint is None else Form(constraint, text_of, facts.end_ids)

    @property
    def turns(self) -> bool:
        """Whether the rest must be asked for anew, because a part of another form begins."""
        return self._form is not None and self._form.turns

    def forced(self, version: int) -> Step | None:
        """The ids that the response must begin with, cut at an end id or at the limit; None if it has begun.

        Their log-prob is 0: no other id could be taken.
        """
        ids = () if self._said else self._request.forced_prefix[: self._limit]
        end = next((place for place, token in enumerate(ids) if token in self._ends), None)
        if end is not None:
            ids = ids[: end + 1]
        if not ids:
            return None
        ended = "stop" if end is not None else "length" if len(ids) == self._limit else None
        self._said.extend(ids)
        return Step(
            ids=ids,
            logprobs=(0.0,) * len(ids),
            versions=(version,) * len(ids),
            forced=(True,) * len(ids),
            cache_version=version,
            ended=ended,
        )

    def rest(self, weights: str | None) -> Ask:
        """What is left to ask for."""
        sampling = self._request.sampling
        seed = None if sampling.seed is None else (sampling.seed + len(self._said)) % SEEDS
        ask = Ask(
            prompt_ids=(*self._request.prompt_ids, *self._said),
            sampling=replace(sampling, max_tokens=self._limit - len(self._said), seed=seed),
            end_ids=self._ends,
            weights=weights,
            background=self._request.background,
            top=self._request.top_logprobs,
        )
        return ask if self._form is None else self._form.ask(ask)

    def take(self, piece: Piece, version: int) -> Step | None:
        """The step of a piece that `version` sampled; None if it says nothing and ends nothing.

        Raises EngineError for a piece that no model sampled: it would be recorded, and trained on.
        """
        self._check(piece)
        kept = False
        if self._form is not None:
            taken = self._form.take(piece)
            piece, kept = taken.piece, taken.kept
        self._said.extend(piece.ids)
        ended = piece.ended if piece.ended != CUT else None
        if ended is None and len(self._said) >= self._limit:
            ended = "length"
        if not piece.ids and ended is None:
            return None
        return Step(
            ids=piece.ids,
            logprobs=piece.logprobs,
            versions=(version,) * len(piece.ids),
            forced=(kept,) * len(piece.ids),
            top_logprobs=tuple(map(_told, piece.tops)),
            cache_version=version,
            ended=ended,
        )

    def _check(self, piece: Piece) -> None:
        ids, logprobs, left = piece.ids, piece.logprobs, self._limit - len(self._said) - self._held
        if not len(ids) == len(logprobs) <= left:
            counts = f"{len(ids)} ids and {len(logprobs)} log-probs where {left} were left to sample"
            raise EngineError(f"the server answered {counts}")
        if not all(type(token) is int and 0 <= token < self._vocabulary for token in ids):
            raise EngineError("the server answered ids that the model does not have")
        if not all(isinstance(logprob, int | float) and isfinite(logprob) for logprob in logprobs):
            raise EngineError("the server answered log-probs that are no finite numbers")
        if len(piece.tops) != (0 if self._request.top_logprobs is None else len(ids)):
            raise EngineError(f"the server answered alternatives of {len(piece.tops)} of {len(ids)} ids")

    @property
    def _held(self) -> int:
        return 0 if self._form is None else self._form.holds


def _told(place: Place) -> TopLogprobs:
    """The alternatives that the distribution has: what was cut off is none."""
    likely = sum(value > -inf for value in place.top_logprobs)
    return TopLogprobs(
        sampled=place.logprob, ids=place.top_ids[:likely], logprobs=place.top_logprobs[:likely]
    )


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

"""What a kind of server must be able to do, for `ServerEngine` to make an engine of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from afterwit.turn import Sampling

CUT = "cut"
"""`Piece.ended` of a response that the server ended, not the model: the rest is asked for anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Ids to sample after a prompt."""

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    """Its `seed` and `max_tokens` are of this ask; `stop` and `ignore_eos` are dealt with already."""
    end_ids: frozenset[int]
    """Ids that end it, each as its last id. The server's own end ids do not count."""
    weights: str | None
    """The adapter's name; None: the model without one."""
    background: bool
    schema: str | None = None
    """A JSON schema that it keeps to, from its first id on; None: it is free."""
    top: int | None = None
    """Tell this many alternatives of each id; None: do not."""


class Place(NamedTuple):
    """What weights say of one place of a text. In a response: of the basis that the server tells."""

    logprob: float
    """Of the id that is there. -inf: they rule it out."""
    top_ids: tuple[int, ...]
    """The likeliest, falling; equal ones by the lower id."""
    top_logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The next ids of a response."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    tops: tuple[Place, ...] = ()
    """One for each id if the ask wants alternatives, else none."""
    ended: str | None = None
    """"stop" (an end id, its last), "length", or CUT."""

    def first(self, count: int) -> Piece:
        """Its first ids, without its end if that lies behind them."""
        if count >= len(self.ids):
            return self
        return Piece(ids=self.ids[:count], logprobs=self.logprobs[:count], tops=self.tops[:count])

    def __add__(self, more: Piece) -> Piece:
        return Piece(
            ids=self.ids + more.ids,
            logprobs=self.logprobs + more.logprobs,
            tops=self.tops + more.tops,
            ended=more.ended,
        )


NOTHING = Piece(ids=(), logprobs=())


def joined(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """What came at once as one piece, up to one that ends. A fault comes behind the pieces before it."""
    whole: Piece | None = None
    try:
        for piece in pieces:
            whole = piece if whole is None else whole + piece
            if piece.ended:
                break
    finally:
        if whole is not None:
            yield whole


def place_of(token: int, logprobs: Iterable[tuple[int, float]], top: int) -> Place:
    """The place of an id by the log-probs that a server told, in any order. KeyError without its own."""
    told = dict(logprobs)
    best = sorted(told.items(), key=lambda each: (-each[1], each[0]))[:top]
    return Place(told[token], tuple(each for each, _ in best), tuple(value for _, value in best))


class Server(Protocol):
    """A server of one model. Every method raises EngineUnavailable if the server is not there."""

    async def check(self) -> str | None:
        """Return if it can serve now: the label of its weights, if it keeps one.

        SettingError if it is there, but serves another model.
        """

    def sample(self, ask: Ask) -> AsyncGenerator[Piece, None]:
        """Stream a response; closing the generator ends it on the server.

        EngineUnavailable too if the server knows no adapter of this name: then it was restarted.
        RequestRefused("constraint") for a schema that it cannot follow.
        """

    async def score(self, ids: Sequence[int], weights: str | None) -> list[float]:
        """Log-probs at temperature 1 of ids[1:] with an adapter, or without one, [len(ids) - 1]."""

    async def places(self, ids: Sequence[int], weights: str | None, *, first: int, top: int) -> list[Place]:
        """What an adapter, or the model without one, says of ids[first:], [len(ids) - first]."""

    async def given(
        self, ids: Sequence[int], weights: str | None, *, first: int, at: Sequence[Sequence[int]]
    ) -> list[tuple[float, ...]]:
        """What they say of other ids at each place of ids[first:]: log-probs of `at`, [len(ids) - first][J].

        Only if `Fit.scores_given`.
        """

    async def load_adapter(self, name: str, folder: Path) -> None:
        """Serve the adapter in a folder under a name of its own. EngineError if it does not fit."""

    async def unload_adapter(self, name: str) -> None:
        """Forget an adapter that nobody uses."""

    async def load_weights(self, folder: Path, label: str) -> None:
        """Replace the model's weights by those in a folder, forget every key and value, and take the label.

        Whatever is under way there ends. EngineError if the weights do not fit.
        """

    async def close(self) -> None:
        """Close the connections. Requests under way get EngineUnavailable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCommand:
    """A server's command line, and the environment variables that it gets beside the inherited ones."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

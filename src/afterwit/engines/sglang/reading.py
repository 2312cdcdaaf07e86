"""SGLang's answers: the pieces of a response, the log-prob of an id, an adapter that is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from afterwit.core.errors import EngineError, EngineUnavailable, RequestRefused
from afterwit.engines.server.client import failed
from afterwit.engines.server.server import CUT, Ask, Piece, Place, place_of
from afterwit.engines.sglang.asking import is_cut_off
from afterwit.engines.sglang.manner import Manner

ENDS = {"stop": "stop", "length": "length"}
GRAMMAR = "grammar"
"""In what the server says of a schema that it cannot follow."""
WORDS = 200
UNKNOWN = ("never been loaded", "not loaded")
"""What the server says of an adapter that it does not have."""


class Reader:
    """The pieces of one response. `ended`: the server has nothing more to say."""

    def __init__(self, ask: Ask, manner: Manner) -> None:
        self._ends, self._weights, self._incremental = ask.end_ids, ask.weights, manner.incremental
        self._top, self._has_schema = ask.top, ask.schema is not None
        self._column = "output_token_sampling_logprobs" if is_cut_off(ask.sampling) else None
        self._read = 0
        self.ended = False

    def piece(self, event: Mapping[str, Any]) -> Piece:
        """EngineError if the server reports a fault in place of the rest."""
        if "error" in event:
            self.ended = True
            said = str(event["error"].get("message"))
            self._check_schema(said)
            words = f"the server failed in a response: {said}"
            raise lost_adapter(failed("/generate", event["error"], words), words, self._weights)
        meta = event["meta_info"]
        rows = self._new(meta["output_token_logprobs"])
        ids = tuple(row[1] for row in rows)
        logprobs = tuple(row[0] for row in rows)
        tops = self._tops(meta, rows)
        if self._column is not None:
            logprobs = tuple(self._new(meta[self._column]))
        self._read += len(ids)
        reason = meta["finish_reason"]
        self.ended = reason is not None
        if reason is not None and reason["type"] == "abort":
            self._check_schema(str(reason.get("message")))
        end = next((place for place, token in enumerate(ids) if token in self._ends), None)
        if end is not None:  # the server stops there too, if it may: what it says behind it was not asked for
            piece = Piece(ids=ids, logprobs=logprobs, tops=tops)
            return replace(piece.first(end + 1), ended="stop")
        ended = None if reason is None else ENDS.get(reason["type"], CUT)
        return Piece(ids=ids, logprobs=logprobs, tops=tops, ended=ended)

    def _check_schema(self, said: str) -> None:
        """RequestRefused if the server ends the response because of its schema: it is there and works."""
        if self._has_schema and GRAMMAR in said:
            raise RequestRefused(f"The schema cannot be followed: {said[:WORDS]}", field="constraint")

    def _tops(self, meta: Mapping[str, Any], rows: list[Any]) -> tuple[Place, ...]:
        if self._top is None:
            return ()
        told = self._new(meta["output_top_logprobs"]) if self._top else [()] * len(rows)
        return tuple(
            place_of(row[1], [*((each[1], each[0]) for each in others), (row[1], row[0])], self._top)
            for row, others in zip(rows, told, strict=True)
        )

    def _new(self, column: list[Any]) -> list[Any]:
        return column if self._incremental else column[self._read :]


def logprob_of(row: Sequence[Any], token: int, manner: Manner) -> float:
    """EngineError unless the row is of this id and has a number."""
    value, index = row[0], row[1]
    if value is None or not (index == token or (index == 0 and token == manner.last)):
        raise EngineError(f"the server scored id {index} in place of {token}")
    return float(value)


def place_at(
    token: int, row: Sequence[Any], told: Sequence[Sequence[Any]], top: int, manner: Manner
) -> Place:
    """What the server says of an id and of the `top` likeliest at its place."""
    values = [(each[1], each[0]) for each in told]
    return place_of(token, [*values, (token, logprob_of(row, token, manner))], top)


def given_at(wanted: Sequence[int], told: Sequence[Sequence[Any]]) -> tuple[float, ...]:
    """The log-probs of these ids among those that the server says of a place. KeyError without one."""
    values = {each[1]: each[0] for each in told}
    return tuple(float(values[token]) for token in wanted)


def lost_adapter(error: EngineError, words: str, weights: str | None) -> EngineError:
    """A server that knows an adapter no more was started anew."""
    if weights is not None and any(each in words for each in UNKNOWN):
        return EngineUnavailable(f"the server no longer has the adapter {weights}")
    return error

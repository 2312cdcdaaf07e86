"""Pieces of a response that came at once become one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from afterwit.engines.port import TopLogprobs
from afterwit.engines.server.server import CUT, StreamChunk, joined
from afterwit.errors import EngineError

PLACE = TopLogprobs(-0.5, (4,), (-0.5,))


def said(token: int, ended: str | None = None) -> StreamChunk:
    return StreamChunk(ids=(token,), logprobs=(-float(token),), tops=(PLACE,), ended=ended)


def test_nothing_that_came_is_lost():
    (piece,) = joined([said(1), said(2), said(3, "stop")])
    assert piece == StreamChunk(ids=(1, 2, 3), logprobs=(-1.0, -2.0, -3.0), tops=(PLACE,) * 3, ended="stop")
    assert list(joined([])) == []


@pytest.mark.parametrize("ended", ["stop", "length", CUT])
def test_nothing_comes_behind_the_end(ended):
    (piece,) = joined([said(1, ended), said(2)])
    assert (piece.ids, piece.ended) == ((1,), ended)


def test_a_fault_comes_behind_what_was_said_before_it():
    def broken() -> Iterator[StreamChunk]:
        yield said(1)
        yield said(2)
        raise EngineError("gone")

    pieces = joined(broken())
    assert next(pieces).ids == (1, 2)
    with pytest.raises(EngineError, match="gone"):
        next(pieces)


def test_the_cached_tokens_of_the_first_piece_are_those_of_all():
    (piece,) = joined([replace(said(1), cached=5), said(2), replace(said(3), cached=7)])
    assert (piece.cached, piece.first(1).cached) == (5, 5)

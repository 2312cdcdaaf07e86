"""The server that has read a prompt's prefix."""

from __future__ import annotations

from typing import Any, cast

from afterwit.engines.server.fleet import BLOCK, LOOSE, Prefixes

PROMPT = tuple(range(100, 100 + 2 * BLOCK + LOOSE))
ONE, TWO = (cast("Any", name) for name in "ab")


def test_the_next_turn_a_retry_and_a_branch_go_where_their_prompt_was_read() -> None:
    known = Prefixes()
    known.read(PROMPT, ONE)
    for more in ((), (1, 2, 3), range(200)):
        assert known.home((*PROMPT, *more)) is ONE
    assert known.home(range(60)) is None


def test_the_end_of_a_prompt_may_be_written_otherwise_later() -> None:
    known = Prefixes()
    known.read(PROMPT, ONE)
    assert known.home((*PROMPT[:-LOOSE], 1, 2, 3)) is ONE
    assert known.home((*PROMPT[: -LOOSE - 1], 1, 2, 3)) is None


def test_the_longest_prompt_counts_and_of_equal_ones_the_latest() -> None:
    known, longer = Prefixes(), (*PROMPT, *range(3 * BLOCK))
    known.read(PROMPT, ONE)
    known.read(longer, TWO)
    assert (known.home(longer), known.home((*PROMPT, 7))) == (TWO, ONE)
    known.read(PROMPT, TWO)
    assert known.home(PROMPT) is TWO

"""Grammars: the state of one response never affects another."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path

from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.embedded.grammar import Grammars, Guide
from afterwit.engines.port import Constraint
from afterwit.errors import RequestRefused


def followed(grammars: Grammars, pattern: str, *, seed: int, most: int) -> int:
    """How many tokens a random response has before its pattern takes too much work; at most `most`."""
    schema = json.dumps({"type": "string", "pattern": pattern})
    chance = random.Random(seed)
    count = 0
    with suppress(RequestRefused):
        guide = Guide(Constraint(schema=schema), grammars)
        while count < most and (allowed_V := guide.mask()) is not None:
            guide.accept(chance.choice(allowed_V.nonzero()[:, 0].tolist()))
            count += 1
    return count


def test_a_pattern_that_took_too_much_work_is_begun_anew(qwen: Path, engine: EmbeddedEngine) -> None:
    """Each response makes states of the lexer, which all share. Too many end one response, not the next."""
    grammars = Grammars(qwen, engine.facts)
    counts = [followed(grammars, "^.*a.{500}$", seed=seed, most=1000) for seed in range(4)]
    assert min(counts) > 100, counts
    grammars.close()

"""What the shipped models were trained on can be drawn again, byte for byte."""

from __future__ import annotations

import json
from hashlib import sha256
from itertools import islice

import pytest

from experiments.pretrain.pretrain import CORPORA

DRAWN = {"tools": "f03f6841ef0626d1", "chat": "935cdb28a37d8da8"}
"""Hashes of the first conversations and exercises of seed 0."""


@pytest.mark.parametrize("world", CORPORA)
def test_the_first_conversations_and_exercises_are_those_the_model_saw(world: str) -> None:
    corpus = CORPORA[world]
    drawn = [
        example.messages
        for source in (corpus.samples, corpus.exercises)
        for example in islice(source(0), 200)
    ]
    assert sha256(json.dumps(drawn).encode()).hexdigest()[:16] == DRAWN[world]

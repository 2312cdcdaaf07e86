"""The training data of the shipped models can be drawn again, byte for byte."""

from __future__ import annotations

import json
from hashlib import sha256
from itertools import islice

import pytest

from experiments.pretrain.pretrain import CORPORA

DRAWN = {"tools": "2f772298350dd67d", "chat": "935cdb28a37d8da8"}
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


def test_the_second_part_of_the_tools_models_training_is_the_one_it_saw() -> None:
    drawn = [example.messages for example in islice(CORPORA["tools"].later(1), 200)]
    assert sha256(json.dumps(drawn).encode()).hexdigest()[:16] == "dee85324cffce27f"

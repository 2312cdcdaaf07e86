"""What does it cost to ask an update for what people approved, against the update itself?

An update of 16 turns with two hints each, reference KL and base teacher, of prompts of 300 tokens and
responses of 60, on a random Qwen3 of 3 M parameters. The suite holds five kinds of 32 approved responses of
that length; the gate takes from it what its budget allows. Left out: GPUs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import torch

from afterwit.checkpoints import Versions
from afterwit.core.judged_turn import JudgedTurn
from afterwit.core.message import Conversation, Message
from afterwit.core.promotion import Episode, Item
from afterwit.learner.settings import LearnerSettings
from afterwit.learner.suite import kept
from afterwit.learner.trainer import Trainer
from afterwit.objective.settings import ObjectiveSettings
from afterwit.stages.promotion import Gate, PromotionSettings
from afterwit.store.sqlite import SqliteStore
from afterwit.wire.model_text.render import Renderer
from benchmarks.asked import Asked
from benchmarks.measure import Row, at_most, cpu_seconds
from tests.fakes.judged_samples import VOCABULARY, a_sample
from tests.fakes.models import tiny_qwen3

TURNS, WORDS, RESPONSE = 16, 300, 60
KINDS = ("read", "write", "delete", "delete dry_run=true", "text")
PER_KIND = 32
SHAPE = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4}


def rows(asked: Asked) -> Iterator[Row]:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        base = tiny_qwen3(Path(folder), **SHAPE)
        shares, tokens = [], 0
        for run in range(1 if asked.quick else asked.runs):
            share, tokens = _share(base, Path(folder) / f"home{run}")
            shares.append(share)
    yield Row(
        id="P1",
        what=f"promotion: asking an update of {TURNS} turns for what was approved / the update",
        values=tuple(shares),
        target=at_most(0.2),
        floor="the update",
        note=f"{tokens} tokens of approved responses",
    )


def _share(base: Path, home: Path) -> tuple[float, int]:
    """Processor time of the gate over that of the update, and the tokens that it read."""
    renderer, random = Renderer.load(base), Random(0)
    settings = LearnerSettings(device="cpu", lora_rank=0, lr=1e-6)
    home.mkdir()
    versions = Versions(root=home / "versions", base=base)
    store = SqliteStore.open(home / "store.db", fingerprint="tiny")
    for number in range(PER_KIND * len(KINDS)):
        item = _approved(number, random)
        ended = Episode(turn=item.turn, session="s", source=item.source, version=0, bad=None, approved=())
        store.end_episode(ended, [item], steps=[item.turn], now=item.since)
    trainer = Trainer(versions, renderer, settings=settings, objective=ObjectiveSettings(beta=0.1))
    trainer.begin(now=0.0)
    items, _ = trainer.build([_turn(renderer, number) for number in range(TURNS)])
    gate = Gate(store, versions, PromotionSettings())
    work = sum(3 * len(item.student) + sum(map(len, item.teachers)) for item in items)
    asked_for = gate.items((), work=work)
    update = cpu_seconds(lambda: trainer.train(items, [], now=1.0, progress=lambda phase: None))
    asking = cpu_seconds(lambda: kept(trainer.policy(), asked_for, settings))
    store.close()
    return asking / update, sum(map(len, asked_for))


def _approved(number: int, random: Random) -> Item:
    return Item(
        turn=f"approved{number}",
        stratum=KINDS[number % len(KINDS)],
        source=f"person{number % 7}",
        version=0,
        since=float(number),
        prompt_ids=tuple(random.randrange(VOCABULARY) for _ in range(WORDS)),
        ids=tuple(random.randrange(VOCABULARY) for _ in range(RESPONSE)),
        sure=(True,) * RESPONSE,
    )


def _turn(renderer: Renderer, number: int) -> JudgedTurn:
    """A turn whose prompt is as long as the approved ones."""
    sample, random = a_sample(renderer, number, tokens=RESPONSE), Random(number)
    words = ("read", "write", "edit", "please", "file", "answer")
    said = " ".join(random.choice(words) for _ in range(WORDS))
    conversation = Conversation(messages=(Message(role="user", content=said),))
    turn = replace(sample.turn, conversation=conversation, prompt_ids=renderer.prompt_ids(conversation))
    return replace(sample, turn=turn)

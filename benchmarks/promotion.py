"""What do the test of approved turns and the measured effects cost, against the update itself?

An update of 16 turns with two hints each, reference KL and base teacher, of prompts of 300 tokens and
responses of 60, on a random Qwen3 of 3 M parameters. The suite holds five kinds of 32 approved responses of
that length; the gate takes from it what its budget allows. Left out: GPUs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import torch

from afterwit.chat_format.render import Renderer
from afterwit.checkpoints.versions import Versions
from afterwit.learning.metrics import effects, to_measure, work
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.trainer import Trainer
from afterwit.learning.update import score, update_state
from afterwit.objective.settings import ObjectiveSettings
from afterwit.promotion.episodes import Episode
from afterwit.promotion.gate import Gate
from afterwit.promotion.suite import PromotionSettings, SuiteItem
from afterwit.store.sqlite import SqliteStore
from afterwit.turn import Conversation, Message
from afterwit.verdict import JudgedTurn
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
        runs = [_shares(base, Path(folder) / f"home{run}") for run in range(1 if asked.quick else asked.runs)]
    yield Row(
        id="W1",
        what=f"promotion: asking an update of {TURNS} turns for what was approved / the update",
        values=tuple(run.gate for run in runs),
        target=at_most(0.2),
        floor="the update",
        note=f"{runs[0].tokens} tokens of approved responses",
    )
    yield Row(
        id="W2",
        what=f"promotion and the ledger: that, and what the update did to its {TURNS} turns / the update",
        values=tuple(run.gate + run.effects for run in runs),
        target=at_most(0.33),
        floor="the update",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Processor time over that of the update, and the tokens that the gate read."""

    gate: float
    effects: float
    tokens: int


def _shares(base: Path, home: Path) -> Shares:
    renderer, random = Renderer.load(base), Random(0)
    settings = LearnerSettings(device="cpu", lora_rank=0, lr=1e-6, measure_effects=False)
    home.mkdir()
    versions = Versions(root=home / "versions", base=base)
    store = SqliteStore.open(home / "store.db", fingerprint="tiny")
    for number in range(PER_KIND * len(KINDS)):
        item = _approved(number, random)
        ended = Episode(
            turn=item.turn,
            session="s",
            source=item.source,
            version=0,
            bad=None,
            complaint=False,
            kind="",
            approved=(),
        )
        store.end_episode(ended, [item], steps=[item.turn], now=item.since)
    trainer = Trainer(versions, renderer, settings=settings, objective=ObjectiveSettings(beta=0.1))
    trainer.begin(now=0.0)
    items, _ = trainer.build([_turn(renderer, number) for number in range(TURNS)])
    gate = Gate(store, versions, PromotionSettings())
    asked_for = gate.items((), work=work(items), shared=trainer.packs(trainer.policy()))
    update = cpu_seconds(lambda: trainer.train(items, [], now=1.0, progress=lambda phase: None))
    asking = cpu_seconds(lambda: trainer.read(trainer.policy(), asked_for))
    store.close()
    state = update_state(trainer.policy(), trainer.frozen, items, trainer.objective, settings)
    score(state)
    effect = cpu_seconds(lambda: effects(state, range(TURNS), measured=to_measure(items, TURNS)))
    return Shares(gate=asking / update, effects=effect / update, tokens=sum(map(len, asked_for)))


def _approved(number: int, random: Random) -> SuiteItem:
    return SuiteItem(
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

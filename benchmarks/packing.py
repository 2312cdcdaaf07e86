"""What does running shared tokens once save, against one sequence per row?

Random Qwen3s with a small vocabulary, so that it is the backbone that is measured. The floor is one plain
causal row as long as the packed one (P4: the student). P4's model is wider: its attention has the share of
the work that it has in a 4B model at that length, a sixth. Left out: the head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from afterwit.learning.models import recompute_activations
from afterwit.learning.passes import Row, response_logits, token_ratio
from afterwit.packing.attention import unsupported_reason
from benchmarks.asked import Asked, Scale, Shape
from benchmarks.measure import Row as Figure
from benchmarks.measure import Variants, at_least, at_most, interleaved, noted, ratios
from benchmarks.models import qwen3
from benchmarks.sessions import Session, drawn

VOCABULARY = 4096
SMALL = Shape(width=256, layers=4, vocabulary=VOCABULARY)
WIDE = Shape(width=768, heads=4, kv_heads=2, head_dim=64, inner=2048, vocabulary=VOCABULARY)
SESSION = Session(turns=16, system=300, asked=56, said=34, hint=35)
SESSIONS = Scale(shape=SMALL, tokens=SESSION.tokens), Scale(shape=SMALL, tokens=SESSION.tokens // 16)
PROMPTS = Scale(shape=WIDE, tokens=4096), Scale(shape=WIDE, tokens=256)
FLOOR = "one plain row as long"


def rows(asked: Asked) -> Iterator[Figure]:
    for scale in asked.scales(*SESSIONS):
        yield from _sessions(asked, scale)
    for scale in asked.scales(*PROMPTS):
        yield _prompt(asked, scale)


def packable(shape: Shape, *, dtype: torch.dtype, device: str = "cpu") -> PreTrainedModel:
    """A model that packed rows can go through."""
    made = qwen3(replace(shape, vocabulary=VOCABULARY), dtype=dtype, device=device)
    if (reason := unsupported_reason(made)) is not None:
        raise SystemExit(f"the model cannot be packed: {reason}")
    return made


def _model(asked: Asked, scale: Scale) -> PreTrainedModel:
    """The question's own are small enough to keep their activations."""
    made = packable(scale.shape, dtype=asked.dtype, device=asked.device)
    if scale.tag:
        recompute_activations(made, above=0)
    return made


def _sessions(asked: Asked, scale: Scale) -> Iterator[Figure]:
    """P1 and P3."""
    made = _model(asked, scale)
    students, hinted = SESSION.times(scale.tokens / SESSION.tokens).rows(VOCABULARY)
    everything = students + [row for each in hinted for row in each]
    for name, work, given, bound, what in (
        ("P1", _train, students, 7.5, "training 16 turns"),
        ("P3", _score, everything, 9.0, "scoring 16 turns with 3 teachers"),
    ):
        timed, note = interleaved(_ways(made, work, given), runs=asked.runs, clock=asked.seconds)
        yield Figure(
            id=f"{name}{scale.tag}",
            what=f"{what}: one sequence a row / packed",
            values=ratios(timed, "apart", "packed"),
            target=at_least(bound),
            peer="one sequence a row",
            note=noted(f"token ratio {token_ratio(given):.2f}", note),
        )
        yield Figure(
            id=f"{name.lower()}{scale.tag}",
            what=f"{what}: packed / {FLOOR}",
            values=ratios(timed, "packed"),
            floor=FLOOR,
        )


def _ways(made: PreTrainedModel, work: Callable[..., None], given: Sequence[Row]) -> Variants:
    long, alone = [_as_long_as(given)], [[row] for row in given]
    return {
        "floor": lambda: work(made, [long], packed=False),
        "packed": lambda: work(made, [given], packed=True),
        "apart": lambda: work(made, alone, packed=False),
    }


def _prompt(asked: Asked, scale: Scale) -> Figure:
    """P4."""
    made, random = _model(asked, scale), Random(0)
    prompt, response = drawn(random, scale.tokens, VOCABULARY), drawn(random, 200, VOCABULARY)
    given = [
        Row(prompt=prompt + drawn(random, hint, VOCABULARY), response=response) for hint in (0, 72, 72, 72)
    ]
    tokens = sum(len(row) - 1 for row in given) / token_ratio(given)
    variants = {
        "floor": lambda: _score(made, [given[:1]], packed=False),
        "packed": lambda: _score(made, [given], packed=True),
    }
    timed, note = interleaved(variants, runs=asked.runs, clock=asked.seconds)
    return Figure(
        id=f"P4{scale.tag}",
        what=f"one turn of {scale.tokens} tokens: student and 3 teachers / student",
        values=ratios(timed, "packed"),
        target=at_most(1.35),
        floor="the student alone",
        note=noted(f"tokens {tokens / (len(given[0]) - 1):.2f}", note),
    )


def _train(made: PreTrainedModel, passes: Sequence[Sequence[Row]], *, packed: bool) -> None:
    made.zero_grad()
    for given in passes:
        loss(response_logits(made, given, packed=packed), given).backward()


@torch.no_grad()
def _score(made: PreTrainedModel, passes: Sequence[Sequence[Row]], *, packed: bool) -> None:
    for given in passes:
        response_logits(made, given, packed=packed)


def loss(logits: Sequence[Tensor], given: Sequence[Row]) -> Tensor:
    """The mean negative log-prob of each response, summed."""
    pairs = zip(logits, given, strict=True)
    each = [
        nn.functional.cross_entropy(logits_TV, torch.tensor(row.response, device=logits_TV.device))
        for logits_TV, row in pairs
    ]
    return torch.stack(each).sum()


def _as_long_as(given: Sequence[Row]) -> Row:
    """One plain row with as many tokens as these have packed, and as many responses predicted."""
    tokens = round(sum(len(row) - 1 for row in given) / token_ratio(given))
    said = min(sum(len(row.response) for row in given), tokens)
    return Row(
        prompt=drawn(Random(2), tokens + 1 - said, VOCABULARY), response=drawn(Random(3), said, VOCABULARY)
    )

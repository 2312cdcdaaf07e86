"""What does it cost to score a whole rollout in hindsight, against a forward for each turn and hint?

15 turns of an agent that calls tools, 3 candidate hints for each, by the scorer of the embedded engine over a
random Qwen3. One by one means a forward for each turn and hint whose head sees the response alone; as
published, one that also returns the likeliest ids at every position of the prompt. A hint at the end follows
the whole rollout, which therefore runs once. An agent's rollout has its last user message at the very
beginning, and a hint there changes all that follows: only the part before the hint is shared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import torch
from transformers import PreTrainedModel

from afterwit.engines.embedded.engine import attend_in_slots
from afterwit.engines.embedded.forward import score_rows
from afterwit.engines.port import Score
from afterwit.fused_head.head import score_logits
from afterwit.judging.hinted_prompts import Placement
from afterwit.packing.pack import ratio
from benchmarks.asked import Asked, Scale, Shape
from benchmarks.measure import Row, at_least, interleaved, noted, ratios
from benchmarks.models import qwen3
from benchmarks.sessions import HINTS, drawn

TOP = 20
TURNS = 15
SYSTEM, TASK, SAID, RESULT, HINT = 600, 60, 32, 60, 24
"""Tokens of the system prompt with its tools, of the task, of each response, tool result and hint."""
SHAPE = Shape(width=256, vocabulary=32_768)
SCALES = (
    Scale(shape=SHAPE, tokens=SYSTEM),
    Scale(shape=replace(SHAPE, vocabulary=2048), tokens=SYSTEM // 20),
)
FLOOR = "one plain row as long"


def rows(asked: Asked) -> Iterator[Row]:
    for scale in asked.scales(*SCALES):
        yield from _placed(asked, scale)


def rollout(placement: Placement, vocabulary: int, factor: float = 1.0, *, seed: int = 0) -> list[Score]:
    """Each turn's response after each hint's prompt. `factor`: how much longer each part is."""
    random = Random(seed)
    system, task, said, result, hint = (round(part * factor) for part in (SYSTEM, TASK, SAID, RESULT, HINT))
    begun, after, found = drawn(random, system + task, vocabulary), (), list[Score]()
    for _ in range(TURNS):
        response = drawn(random, said, vocabulary)
        for _ in range(HINTS):
            words = drawn(random, hint, vocabulary)
            prompt = begun + after + words if placement is Placement.END else begun + words + after
            found.append(Score(prompt_ids=prompt, response_ids=response))
        after += response + drawn(random, result, vocabulary)
    return found


def _placed(asked: Asked, scale: Scale) -> Iterator[Row]:
    made = qwen3(scale.shape, dtype=asked.dtype, device=asked.device)
    attend_in_slots(made)
    factor = scale.tokens / SYSTEM
    for name, one, placement, target in (
        ("H1", "h1", Placement.END, 5.0),
        ("h3", "h4", Placement.LAST_USER, None),
    ):
        given = rollout(placement, scale.shape.vocabulary, factor)
        timed, note = interleaved(
            {
                "floor": lambda given=given: _score(made, [_as_long_as(given)]),
                "shared": lambda given=given: _score(made, given),
                "one": lambda given=given: _score(made, given[::HINTS]),
                "alone": lambda given=given: [_score(made, [row]) for row in given],
            },
            runs=asked.runs,
            clock=asked.seconds,
        )
        where = "at the end" if placement is Placement.END else "in the last user message, the first of all"
        shared = ratio([row.prompt_ids + row.response_ids[:-1] for row in given])
        yield Row(
            id=f"{name}{scale.tag}",
            what=f"{TURNS} turns, {HINTS} hints {where}: a forward for each / shared",
            values=ratios(timed, "alone", "shared"),
            target=None if target is None else at_least(target),
            peer="a forward for each turn and hint",
            note=noted(f"token ratio {shared:.2f}", note),
        )
        yield Row(
            id=f"{one}{scale.tag}",
            what="the same / shared, by a rule that asks one teacher a turn (`longest`, `shortest`)",
            values=ratios(timed, "alone", "one"),
            peer="a forward for each turn and hint",
        )
        if placement is Placement.END:
            yield _published(asked, scale, made, given)


def _published(asked: Asked, scale: Scale, made: PreTrainedModel, given: Sequence[Score]) -> Row:
    part = given[:: len(given) // 5]
    timed, note = interleaved(
        {
            "floor": lambda: _score(made, given),
            "published": lambda: [_whole(made, row) for row in part],
        },
        runs=min(asked.runs, 3),
        clock=asked.seconds,
    )
    scaled = tuple(value * len(given) / len(part) for value in ratios(timed, "published"))
    return Row(
        id=f"h2{scale.tag}",
        what=f"the same with the likeliest {TOP} ids of every prompt place, as published / shared",
        values=scaled,
        peer="the published calls",
        note=noted(f"{len(part)} of {len(given)} rows measured", note),
    )


def _score(made: PreTrainedModel, given: Sequence[Score]) -> None:
    score_rows(made, 0, given, top=TOP)


@torch.inference_mode()
def _whole(made: PreTrainedModel, row: Score) -> None:
    ids_1L = torch.tensor([(*row.prompt_ids, *row.response_ids)], device=made.device)
    logits_LV = made(input_ids=ids_1L, use_cache=False).logits[0, :-1]
    ones_L = torch.ones(len(logits_LV), device=made.device)
    score_logits(logits_LV, ones_L, ids_1L[0, 1:, None], k=TOP)


def _as_long_as(given: Sequence[Score]) -> Score:
    """One plain row with as many tokens as these have where what they share runs once."""
    inputs = [row.prompt_ids + row.response_ids[:-1] for row in given]
    tokens = round(sum(map(len, inputs)) / ratio(inputs))
    said = min(sum(len(row.response_ids) for row in given), tokens)
    vocabulary = max(map(max, inputs)) + 1
    return Score(
        prompt_ids=drawn(Random(2), tokens + 1 - said, vocabulary),
        response_ids=drawn(Random(3), said, vocabulary),
    )

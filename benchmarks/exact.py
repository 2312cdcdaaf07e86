"""Do packed rows give the same results as rows one by one?

Logits, loss and gradients of a small random Qwen3 over random trees of rows, each difference relative to the
largest value of its tensor if that is above 1; the largest of all is the figure.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import torch
from torch import Tensor
from transformers import PreTrainedModel

from afterwit.learning.passes import Row, response_logits
from benchmarks.asked import Asked
from benchmarks.measure import Row as Figure
from benchmarks.measure import at_most
from benchmarks.packing import SMALL, VOCABULARY, loss, packable
from benchmarks.sessions import drawn


def rows(asked: Asked) -> Iterator[Figure]:
    """P2."""
    trees = 4 if asked.quick else 20
    for dtype, bound in ((torch.float32, 5e-6), (torch.float64, 1e-12)):
        made = packable(SMALL, dtype=dtype)
        yield Figure(
            id="P2",
            what=f"packed against one by one, {trees} trees, {str(dtype).removeprefix('torch.')}",
            values=(max(_apart(made, _tree(Random(seed))) for seed in range(trees)),),
            target=at_most(bound),
            peer="one sequence a row",
        )


def _apart(made: PreTrainedModel, given: list[Row]) -> float:
    one_by_one = _found(made, [[row] for row in given], packed=False)
    together = _found(made, [given], packed=True)
    pairs = zip(one_by_one, together, strict=True)
    return max(float((a - b).abs().max() / a.abs().max().clamp(min=1)) for a, b in pairs)


def _found(made: PreTrainedModel, passes: list[list[Row]], *, packed: bool) -> list[Tensor]:
    made.zero_grad()
    logits = [one for part in passes for one in response_logits(made, part, packed=packed)]
    total = loss(logits, [row for part in passes for row in part])
    total.backward()
    gradients = [each.grad.clone() for each in made.parameters() if each.grad is not None]
    return [each.detach() for each in (*logits, total, *gradients)]


def _tree(random: Random) -> list[Row]:
    """Branches at any depth of any earlier row, its end and beyond included; duplicates."""
    given: list[tuple[int, ...]] = [drawn(random, random.randrange(2, 60), VOCABULARY)]
    while len(given) < 8:
        parent = random.choice(given)
        kept = parent[: random.randrange(1, len(parent) + 1)]
        given.append(kept + drawn(random, random.randrange(2 - min(len(kept), 2), 40), VOCABULARY))
    cuts = [random.randrange(1, len(ids)) for ids in given]
    return [Row(prompt=ids[:cut], response=ids[cut:]) for ids, cut in zip(given, cuts, strict=True)]

"""Logits of responses: one kernel for the current, old, base and teacher's weights.

Axes: T tokens of a response, N response tokens of a pass, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import torch
from torch import Tensor
from transformers import PreTrainedModel

from afterwit.core.version import Probe
from afterwit.learner import layout as layouts
from afterwit.learner.packing import NEVER, Packing
from afterwit.learner.rows import Row

PROBE_TOKENS = 64


def response_logits(model: PreTrainedModel, rows: Sequence[Row], *, packed: bool = False) -> list[Tensor]:
    """The logits [T, V] that predict each row's response, in one pass, with the graph if it is on.

    The head sees response rows only. Packed, tokens that rows share go through the model once.
    """
    layout = (layouts.packed if packed else layouts.padded)(rows, model.device)
    head = model.get_output_embeddings()
    handle = head.register_forward_pre_hook(lambda _, inputs: (layout.pick(inputs[0])[None],))
    try:
        logits_NV = model(**layout.inputs).logits[0]
    finally:
        handle.remove()
    return list(logits_NV.split([len(row.response) for row in rows]))


@torch.no_grad()
def stream_logits(
    model: PreTrainedModel, rows: Sequence[Row], limit: int, packing: Packing = NEVER
) -> Iterator[Tensor]:
    """`response_logits` of the rows in order, without a graph, in passes of `limit` tokens."""
    for chosen, packed in packing.cut(rows, limit, in_order=True):
        yield from response_logits(model, [rows[index] for index in chosen], packed=packed)


@torch.no_grad()
def probe(model: PreTrainedModel) -> Probe:
    """Log-probs at temperature 1 of a fixed draw of ids: an engine with these weights must agree."""
    random = Random(0)
    size = model.config.get_text_config().vocab_size
    ids = tuple(random.randrange(size) for _ in range(PROBE_TOKENS))
    (logits_TV,) = response_logits(model, [Row(prompt=ids[:1], response=ids[1:])])
    logprobs_TV = torch.log_softmax(logits_TV.double(), dim=-1)
    chosen_T = logprobs_TV.gather(-1, torch.tensor(ids[1:], device=model.device)[:, None])[:, 0]
    return Probe(ids=ids, logprobs=tuple(chosen_T.tolist()))

"""Responses through a model, as logits or as the hidden states before its head.

The same code scores the current, old, base and teacher's weights.

Axes: B rows of a pass, L tokens, T tokens of a response, N response tokens of a pass, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from afterwit.core.version import AMPLIFIED, Probe
from afterwit.learner.scoring import layout as layouts
from afterwit.learner.scoring.layout import Layout
from afterwit.learner.scoring.packing import NEVER, Packing
from afterwit.learner.scoring.rows import Row
from afterwit.weights.widened import widened

PROBE_TOKENS = 256
ROWS = 64
"""Rows of logits that are turned into log-probs at a time, in double precision."""


def response_logits(model: PreTrainedModel, rows: Sequence[Row], *, packed: bool = False) -> list[Tensor]:
    """The logits [T, V] that predict each row's response, in one pass; with a graph if gradients are on.

    The head sees response rows only. Packed, tokens that rows share go through the model once.
    """
    layout = _layout(model, rows, packed)
    logits_1NV = _through(model, layout, lambda states_BLD: layout.pick(states_BLD)[None])
    return _by_row(logits_1NV[0], rows)


def response_states(model: PreTrainedModel, rows: Sequence[Row], *, packed: bool = False) -> Tensor:
    """The hidden states [N, D] that predict the responses, row after row. The head does not run."""
    layout, found = _layout(model, rows, packed), list[Tensor]()

    def divert(states_BLD: Tensor) -> Tensor:
        found.append(layout.pick(states_BLD))
        return states_BLD[:, :0]

    _through(model, layout, divert)
    return found[0]


@torch.no_grad()
def stream_logits(
    model: PreTrainedModel, rows: Sequence[Row], limit: int, packing: Packing = NEVER
) -> Iterator[Tensor]:
    """`response_logits` of the rows in order, without a graph, in passes of `limit` tokens."""
    for chosen, packed in packing.cut(rows, limit, in_order=True):
        yield from response_logits(model, [rows[index] for index in chosen], packed=packed)


@torch.no_grad()
def stream_states(
    model: PreTrainedModel, rows: Sequence[Row], limit: int, packing: Packing = NEVER
) -> Iterator[Tensor]:
    """The hidden states [T, D] of each row in order, as `stream_logits` gives its logits."""
    for chosen, packed in packing.cut(rows, limit, in_order=True):
        part = [rows[index] for index in chosen]
        yield from _by_row(response_states(model, part, packed=packed), part)


@torch.no_grad()
def probe(model: PreTrainedModel) -> Probe:
    """Log-probs at temperature 1 of fixed random ids. An engine with these weights must agree.

    They are computed at full precision, so that what is told apart is not hidden by rounding of the
    learner's own (`widened`); the adapter's also as `core.agreement` wants it.
    """
    layers = [module for module in model.modules() if getattr(module, "lora_A", None)]
    config, random = model.config.get_text_config(), Random(0)
    tokens = min(PROBE_TOKENS, getattr(config, "max_position_embeddings", None) or PROBE_TOKENS)
    ids = tuple(random.randrange(config.vocab_size) for _ in range(tokens))
    with widened(model):
        logprobs = _logprobs(model, ids)
        if not layers:
            return Probe(ids=ids, logprobs=logprobs)
        with _amplified(layers):
            return Probe(ids=ids, logprobs=logprobs, amplified=_logprobs(model, ids))


def _logprobs(model: PreTrainedModel, ids: tuple[int, ...]) -> tuple[float, ...]:
    (logits_TV,) = response_logits(model, [Row(prompt=ids[:1], response=ids[1:])])
    ids_T = torch.tensor(ids[1:], device=logits_TV.device)
    found: list[float] = []
    for part_NV, of_N in zip(torch.split(logits_TV, ROWS), torch.split(ids_T, ROWS), strict=True):
        found += part_NV.double().log_softmax(-1).gather(-1, of_N[:, None])[:, 0].tolist()
    return tuple(found)


@contextmanager
def _amplified(layers: Sequence[Any]) -> Iterator[None]:
    """Within the body PEFT's layers add `AMPLIFIED` times what they do."""
    before = [dict(layer.scaling) for layer in layers]
    for layer in layers:
        layer.scaling = {name: AMPLIFIED * scale for name, scale in layer.scaling.items()}
    try:
        yield
    finally:
        for layer, scaling in zip(layers, before, strict=True):
            layer.scaling = scaling


def _layout(model: PreTrainedModel, rows: Sequence[Row], packed: bool) -> Layout:
    return (layouts.packed if packed else layouts.padded)(rows, model.device)


def _through(model: PreTrainedModel, layout: Layout, divert: Callable[[Tensor], Tensor]) -> Tensor:
    """The model's logits, with `divert` applied to the states before the head."""
    handle = model.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: (divert(inputs[0]),))
    try:
        logits: Tensor = model(**layout.inputs).logits
    finally:
        handle.remove()
    return logits


def _by_row(of_tokens: Tensor, rows: Sequence[Row]) -> list[Tensor]:
    return list(torch.split(of_tokens, [len(row.response) for row in rows]))

"""Responses through the model, as logits or as the states that its head makes them of: one kernel for the
current, old, base and teacher's weights.

Axes: B rows of a pass, L padded tokens, T tokens of a response, N response tokens of a pass, D width,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

import torch
from torch import Tensor
from transformers import PreTrainedModel

from afterwit.core.version import Probe
from afterwit.learner.rows import Row

PROBE_TOKENS = 64


def response_logits(model: PreTrainedModel, rows: Sequence[Row]) -> list[Tensor]:
    """The logits [T, V] that predict each row's response, in one pass, with the graph if it is on.

    Rows are padded on the right, which causal attention never looks at, and the head sees response rows only.
    """
    ids_BL, at_row, at_token = _layout(rows, model.device)
    logits_NV = _through(model, ids_BL, lambda states_BLD: states_BLD[at_row, at_token])
    return list(torch.split(logits_NV, [len(row.response) for row in rows]))


def response_states(model: PreTrainedModel, rows: Sequence[Row]) -> Tensor:
    """The head's inputs [N, D] that predict the rows' responses, one after the other. The head sees none."""
    ids_BL, at_row, at_token = _layout(rows, model.device)
    found: list[Tensor] = []

    def divert(states_BLD: Tensor) -> Tensor:
        found.append(states_BLD[at_row, at_token])
        return states_BLD[:, :0]

    _through(model, ids_BL, divert)
    return found[0]


def stream_logits(model: PreTrainedModel, rows: Sequence[Row], limit: int) -> Iterator[Tensor]:
    """`response_logits` of the rows in order, without a graph, at most `limit` padded tokens at a time."""
    return _stream(lambda part: response_logits(model, part), rows, limit)


def stream_states(model: PreTrainedModel, rows: Sequence[Row], limit: int) -> Iterator[Tensor]:
    """The states [T, D] of each row, as `stream_logits` its logits."""

    def states(part: Sequence[Row]) -> Sequence[Tensor]:
        return torch.split(response_states(model, part), [len(row.response) for row in part])

    return _stream(states, rows, limit)


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


def _layout(rows: Sequence[Row], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Padded ids [B, L] without the last of each row, and where in it the N response tokens are predicted."""
    longest = max(len(row) for row in rows) - 1
    ids_BL = torch.zeros((len(rows), longest), dtype=torch.int64)
    at_row: list[int] = []
    at_token: list[int] = []
    for index, row in enumerate(rows):
        ids = (*row.prompt, *row.response)[:-1]
        ids_BL[index, : len(ids)] = torch.tensor(ids)
        at_row += [index] * len(row.response)
        at_token += range(len(row.prompt) - 1, len(ids))
    return ids_BL.to(device), torch.tensor(at_row, device=device), torch.tensor(at_token, device=device)


def _through(model: PreTrainedModel, ids_BL: Tensor, divert: Callable[[Tensor], Tensor]) -> Tensor:
    """The model's logits where `divert` decides what its head sees."""
    handle = model.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: (divert(inputs[0]),))
    try:
        logits: Tensor = model(input_ids=ids_BL, use_cache=False).logits
    finally:
        handle.remove()
    return logits


@torch.no_grad()
def _stream(
    one_pass: Callable[[Sequence[Row]], Sequence[Tensor]], rows: Sequence[Row], limit: int
) -> Iterator[Tensor]:
    """What `one_pass` gives for each row, in order, at most `limit` padded tokens at a time."""
    at = 0
    while at < len(rows):
        count, longest = 0, 0
        for row in rows[at:]:
            longest = max(longest, len(row))
            if count and (count + 1) * longest > limit:
                break
            count += 1
        yield from one_pass(rows[at : at + count])
        at += count

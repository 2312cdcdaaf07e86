"""Logits of responses: one kernel for the current, old, base and teacher's weights.

Axes: B rows of a pass, L padded tokens, T tokens of a response, N response tokens of a pass, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    head = model.get_output_embeddings()
    handle = head.register_forward_pre_hook(lambda _, inputs: (inputs[0][at_row, at_token],))
    try:
        logits_NV = model(input_ids=ids_BL, use_cache=False).logits
    finally:
        handle.remove()
    return list(logits_NV.split([len(row.response) for row in rows]))


@torch.no_grad()
def stream_logits(model: PreTrainedModel, rows: Sequence[Row], limit: int) -> Iterator[Tensor]:
    """`response_logits` of the rows in order, without a graph, at most `limit` padded tokens at a time."""
    at = 0
    while at < len(rows):
        count, longest = 0, 0
        for row in rows[at:]:
            longest = max(longest, len(row))
            if count and (count + 1) * longest > limit:
                break
            count += 1
        yield from response_logits(model, rows[at : at + count])
        at += count


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

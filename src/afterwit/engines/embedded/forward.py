"""The engine's forwards over any causal LM of transformers: read a text on, extend rows, score responses.

The model's own code runs unchanged. It gets a `Row` or a `Batch` and a 4-D additive mask, which transformers
passes on to the attention. Responses are scored by the weights that serve; rows with a common prefix are
packed, so that shared tokens run once. Axes: B rows, Q new positions, L positions attended to, V vocabulary,
T tokens, N response tokens of a pass, D width, K most likely ids.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from afterwit.engines.embedded.cache import Batch, Beginning, Row
from afterwit.engines.port import Score, Scored
from afterwit.fused_head.head import Head, head_of, score_logits, score_states
from afterwit.packing.attention import Inputs, Kernel, kernel_for, tree_attention, unsupported_reason
from afterwit.packing.pack import Block, Path, inputs, pack, together

NAME = "afterwit_slots"
OPTIONS = ("softcap", "s_aux", "position_bias", "dropout")
"""Attention options of some models, in addition to a mask and a scale: left to transformers."""


def prefill(module: nn.Module, row: Row, ids: Sequence[int], *, keep: int = 1) -> Tensor:
    """Read `ids` after those that the row holds. Logits of the last `keep` positions, [keep, V]."""
    weight = next(module.parameters())
    device, start, end = weight.device, len(row.ids), len(row.ids) + len(ids)
    row.aim(len(ids))
    mask_QL = weight.new_full((len(ids), end), -torch.inf).triu(start + 1)
    logits_1QV: Tensor = module(
        input_ids=torch.tensor([list(ids)], device=device),
        position_ids=torch.arange(start, end, device=device)[None],
        attention_mask=mask_QL[None, None],
        past_key_values=row,
        use_cache=True,
        # by index: torch copies the head's weights in half precision to multiply them with a slice
        logits_to_keep=torch.arange(len(ids) - keep, len(ids), device=device),
    ).logits
    row.ids.extend(ids)
    return logits_1QV[0]


def decode(
    module: nn.Module,
    batch: Batch,
    first: int,
    ids: Sequence[int],
    positions: Sequence[int],
    beginnings: Sequence[Beginning | None] = (),
) -> Tensor:
    """Extend row first + i by ids[i] at positions[i]. Each row's next-token logits, [B, V].

    A row that has a beginning holds only the positions after it.
    """
    weight = next(module.parameters())
    device = weight.device
    beyond_BL = batch.aim(first, positions, beginnings or [None] * len(ids), device)
    mask_BL = weight.new_zeros(beyond_BL.shape).masked_fill_(beyond_BL, -torch.inf)
    elsewhere = {"batch": batch} if batch.shared else {}
    logits_B1V: Tensor = module(
        input_ids=torch.tensor(ids, device=device)[:, None],
        position_ids=torch.tensor(positions, device=device)[:, None],
        attention_mask=mask_BL[:, None, None],
        past_key_values=batch,
        use_cache=True,
        logits_to_keep=1,
        **elsewhere,
    ).logits
    return logits_B1V[:, -1]


@torch.inference_mode()
def score(module: nn.Module, ids: Sequence[int], *, chunk: int = 256) -> list[float]:
    """Log-probs at temperature 1 of ids[1:], [T - 1], by the code that serves: a row in pieces."""
    row = Row(context_length=len(ids), coming=len(ids))
    scored: list[float] = []
    for start in range(0, len(ids) - 1, chunk):
        part = ids[start : min(start + chunk, len(ids) - 1)]
        logprobs_QV = prefill(module, row, part, keep=len(part)).float().log_softmax(-1)
        targets_Q = torch.tensor(ids[start + 1 : start + 1 + len(part)], device=logprobs_QV.device)
        scored += logprobs_QV.gather(-1, targets_Q[:, None])[:, 0].tolist()
    return scored


def slot_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    batch: Batch | None = None,
    tree: Sequence[Block] | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Queries [B, H*G, Q, D], keys and values [B, H, L, D] to outputs [B, Q, H*G, D].

    `tree` is given if rows with a common prefix are one packed sequence, `batch` if some rows have a
    beginning in another row. ValueError if the model then needs more than a mask and a scale.
    """
    special = any(options.get(name) for name in OPTIONS)
    if batch is not None:
        if special or attention_mask is None:
            raise ValueError("this model's attention cannot be split into a beginning and the rest")
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        return with_beginnings(query, key, value, attention_mask, scale, batch, kernel_for(query)), None
    if tree is not None or query.device.type != "cpu" or attention_mask is None or special:
        return tree_attention(
            module, query, key, value, attention_mask, tree=tree, scaling=scaling, **options
        )
    rows, heads, queries, width = query.shape
    if queries == 1:  # the heads of a group as queries: keys and values are read once for all of them
        query = query.reshape(rows, key.shape[1], -1, width)
    out = scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, scale=scaling, enable_gqa=True
    )
    if queries == 1:
        return out.reshape(rows, 1, heads, -1), None
    return out.transpose(1, 2).contiguous(), None


def with_beginnings(
    query: Tensor, key: Tensor, value: Tensor, mask_B11L: Tensor, scale: float, batch: Batch, kernel: Kernel
) -> Tensor:
    """One query a row, over its slots and over its beginning: the parts are weighted by their log-sum-exp.

    Rows with the same beginning attend to it in one call.
    """
    rows, heads = query.shape[0], key.shape[1]
    query_BHGD = query.reshape(rows, heads, -1, query.shape[-1])
    scores_BHGL = query_BHGD.float() @ key.float().transpose(-1, -2) * scale + mask_B11L
    lse_BHG = scores_BHGL.logsumexp(-1)
    out_BHGE = (scores_BHGL - lse_BHG[..., None]).exp_() @ value.float()
    for (row, length), members_B in batch.shared:
        of_members_BHGD, own_BHG = query_BHGD[members_B], lse_BHG[members_B]
        members, _, groups, width = of_members_BHGD.shape
        flat_1HQD = of_members_BHGD.transpose(0, 1).reshape(1, heads, members * groups, width)
        part, part_lse = kernel.forward(Inputs(flat_1HQD, *row.layer(batch.layer, length), False, scale))
        part_BHGE = part.view(heads, members, groups, -1).transpose(0, 1)
        part_BHG = part_lse.view(heads, members, groups).transpose(0, 1)
        total_BHG = torch.logaddexp(own_BHG, part_BHG)
        out_BHGE[members_B] = (
            out_BHGE[members_B] * (own_BHG - total_BHG).exp_()[..., None]
            + part_BHGE * (part_BHG - total_BHG).exp_()[..., None]
        )
    return out_BHGE.to(query.dtype).reshape(rows, 1, -1, value.shape[-1])


AttentionInterface.register(NAME, slot_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)


PASS_TOKENS = 16384
"""Tokens of one pass, in addition to its longest row."""
CLOSE = 1e-3
"""Share of the largest logit by which a head's logits may differ from its model's, in fp32 and fp64."""
CLOSE_IN_HALF = 0.02

log = logging.getLogger(__name__)


@torch.inference_mode()
def score_rows(
    module: PreTrainedModel, version: int, rows: Sequence[Score], *, top: int, limit: int = PASS_TOKENS
) -> list[Scored]:
    """The log-probs of each row's response, in the order of the rows."""
    head = linear_head(module)
    found: dict[int, Scored] = {}
    for chosen in passes(module, rows, limit):
        part = [rows[index] for index in chosen]
        found |= zip(chosen, _scored(module, head, part, top, version), strict=True)
    return [found[index] for index in range(len(rows))]


def passes(module: PreTrainedModel, rows: Sequence[Score], limit: int) -> list[list[int]]:
    """Indices of rows to pack together: one by one unless the model allows more and enough is shared."""
    packed = together([_inputs(row) for row in rows], limit)
    if packed and (reason := unsupported_reason(module, NAME)) is not None:
        log.info("rows are scored one by one: %s", reason)
        packed = None
    return packed or [[index] for index in range(len(rows))]


def linear_head(module: PreTrainedModel) -> Head | None:
    """The head, if it is a linear layer that gives the model's own logits, with an optional soft cap."""
    if module.get_output_embeddings()._forward_hooks or module.base_model is module:
        return None
    try:
        head = head_of(module)
    except ValueError:
        return None
    given = {"input_ids": torch.tensor([[0, 1, 2]], device=head.device), "use_cache": False}
    theirs_3V = module(**given).logits[0]
    ours_3V = head.logits(module.base_model(**given).last_hidden_state[0], head.buffer(3))
    close = CLOSE_IN_HALF if theirs_3V.dtype in (torch.bfloat16, torch.float16) else CLOSE
    return head if float((ours_3V - theirs_3V).abs().max()) <= close * float(theirs_3V.abs().max()) else None


def _scored(
    module: PreTrainedModel, head: Head | None, rows: Sequence[Score], top: int, version: int
) -> list[Scored]:
    """The rows of one pass. Without a head, the logits of all their responses are in memory at once."""
    device, lengths = module.device, [len(row.response_ids) for row in rows]
    if len(rows) > 1:
        tree = pack([Path(ids=_inputs(row), first=len(row.prompt_ids) - 1) for row in rows])
        given, places = inputs(tree, device), [place for each in tree.at for place in each]
    else:
        given = {"input_ids": torch.tensor([_inputs(rows[0])], device=device), "use_cache": False}
        places = list(range(len(rows[0].prompt_ids) - 1, len(rows[0]) - 1))
    at_N = torch.tensor(places, device=device)
    taus = torch.tensor([row.tau for row in rows], dtype=torch.float64)
    tau_N = taus.repeat_interleave(torch.tensor(lengths)).to(device)
    ids_N1 = torch.tensor([token for row in rows for token in row.response_ids], device=device)[:, None]
    if head is None:
        scores = score_logits(module(**given, logits_to_keep=at_N).logits[0], tau_N, ids_N1, k=top)
    else:
        states_ND = module.base_model(**given).last_hidden_state[0][at_N]
        scores = score_states(head, states_ND, tau_N, ids_N1, k=top)
    columns = (scores.at_NJ[:, 0], scores.top_ids_NK, scores.top_NK)
    return [
        Scored(
            version=version,
            logprobs=tuple(own.tolist()),
            top_ids=tuple(map(tuple, ids.tolist())),
            top_logprobs=tuple(map(tuple, tops.tolist())),
        )
        for own, ids, tops in zip(*(torch.split(column.cpu(), lengths) for column in columns), strict=True)
    ]


def _inputs(row: Score) -> tuple[int, ...]:
    """All ids but the last, which predicts nothing that is scored."""
    return (*row.prompt_ids, *row.response_ids[:-1])

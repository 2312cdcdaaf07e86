"""Scores responses by the weights that serve. Rows with a common prefix are packed: shared tokens run once.

Axes: N response tokens of a pass, D width, V vocabulary, K most likely ids.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch import nn
from transformers import PreTrainedModel

from afterwit.engines.embedded.forward import NAME
from afterwit.engines.port import Score, Scored
from afterwit.fused_head.head import Head
from afterwit.fused_head.score import score_logits, score_states
from afterwit.packing.attention import unsupported_reason
from afterwit.packing.pack import WORTH, Path, groups, inputs, pack, ratio

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
    ids = [_inputs(row) for row in rows]
    packs = len(rows) > 1 and ratio(ids) >= WORTH
    if packs and (reason := unsupported_reason(module, NAME)) is not None:
        log.info("rows are scored one by one: %s", reason)
        packs = False
    if not packs:
        return [[index] for index in range(len(rows))]
    order = sorted(range(len(rows)), key=ids.__getitem__)
    return [[order[at] for at in each] for each in groups([ids[at] for at in order], limit)]


def linear_head(module: PreTrainedModel) -> Head | None:
    """The head, if it is a linear layer that gives the model's own logits, with an optional soft cap."""
    layer = module.get_output_embeddings()
    if type(layer) is not nn.Linear or layer._forward_hooks or module.base_model is module:
        return None
    soft_cap = getattr(module.config.get_text_config(), "final_logit_softcapping", None)
    head = Head(weight_VD=layer.weight, bias_V=layer.bias, soft_cap=soft_cap)
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

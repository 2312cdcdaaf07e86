"""The policy's likeliest ids, before an update asks a teacher elsewhere about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from afterwit.core.teacher import Ids
from afterwit.fused_head.score import score
from afterwit.learner.policy import Policy
from afterwit.learner.ranks import Ranks
from afterwit.learner.ranks.lockstep import streamed
from afterwit.learner.scoring import Row, stream_logits, stream_states
from afterwit.learner.scoring.packing import NEVER
from afterwit.objective.logprobs import top_k


@torch.no_grad()
def likeliest(policy: Policy, rows: Sequence[Row], k: int, limit: int, ranks: Ranks) -> list[Sequence[Ids]]:
    """At each place of each response `k` ids, or all that there are. `limit`: tokens of a pass.

    In lockstep every rank calls it at the same time.
    """
    wanted = min(k, policy.model.config.get_text_config().vocab_size)
    return [tuple(map(tuple, ids_TK.tolist())) for ids_TK in _ids(policy, rows, wanted, limit, ranks)]


def _ids(policy: Policy, rows: Sequence[Row], k: int, limit: int, ranks: Ranks) -> Iterator[Tensor]:
    if policy.head is None:
        for logits_TV in streamed(stream_logits, policy.model, rows, limit, NEVER, ranks):
            yield top_k(logits_TV, k)
        return
    states = streamed(stream_states, policy.model, rows, limit, NEVER, ranks)
    for row, states_TD in zip(rows, states, strict=True):
        ids_T1 = torch.tensor(row.response, device=states_TD.device)[:, None]
        tau_T = torch.ones(len(row.response), device=states_TD.device)
        yield score(policy.whole_head(), states_TD, tau_T, ids_T1, k=k).top_ids_NK

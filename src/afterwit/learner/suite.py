"""What a policy would say in the place of responses that people approved."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from afterwit.core.promotion import Item
from afterwit.learner.policy import Policy
from afterwit.learner.ranks import ALONE, Ranks
from afterwit.learner.ranks.lockstep import streamed
from afterwit.learner.scoring import Packing, Row, stream_logits
from afterwit.learner.settings import LearnerSettings
from afterwit.objective.logprobs import at, logprobs

ROWS = 256
"""Tokens whose log-probs over the vocabulary are held at once."""


def read(
    policy: Policy, items: Sequence[Item], settings: LearnerSettings, ranks: Ranks = ALONE
) -> list[list[float]]:
    """The log-probs that the policy gives each item's ids, at temperature 1, in one pass.

    Each rank reads its share of them.
    """
    with ranks.running():
        mine = ranks.share([len(item.prompt_ids) + len(item.ids) for item in items])
        own = dict(zip(mine, _read(policy, [items[index] for index in mine], settings, ranks), strict=True))
    found = ranks.gathered(own)
    return [found[index] for index in range(len(items))]


def _read(
    policy: Policy, items: Sequence[Item], settings: LearnerSettings, ranks: Ranks
) -> list[list[float]]:
    rows = [Row(prompt=item.prompt_ids, response=item.ids) for item in items]
    packing = Packing.of(settings, policy.model)
    limit = settings.micro_batch_tokens
    found = streamed(stream_logits, policy.model, rows, limit, packing, ranks)
    return [_logprobs(logits_TV, item) for item, logits_TV in zip(items, found, strict=True)]


def _logprobs(logits_TV: Tensor, item: Item) -> list[float]:
    """The log-prob of each of the item's T ids at temperature 1, some rows at a time."""
    ids_T = torch.tensor(item.ids, device=logits_TV.device)
    parts = zip(torch.split(logits_TV, ROWS), torch.split(ids_T, ROWS), strict=True)
    return torch.cat([at(logprobs(rows, tau=1.0), ids) for rows, ids in parts]).tolist()

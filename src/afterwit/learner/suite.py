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


def kept(
    policy: Policy, items: Sequence[Item], settings: LearnerSettings, ranks: Ranks = ALONE
) -> list[tuple[Item, bool]]:
    """Each item with whether the policy still takes it: the log-probs of the approved ids, in one pass.

    Each rank reads its share of them.
    """
    with ranks.running():
        mine = ranks.share([len(item.prompt_ids) + len(item.ids) for item in items])
        still = dict(zip(mine, _kept(policy, [items[index] for index in mine], settings, ranks), strict=True))
    found = ranks.gathered(still)
    return [(item, found[index]) for index, item in enumerate(items)]


def _kept(policy: Policy, items: Sequence[Item], settings: LearnerSettings, ranks: Ranks) -> list[bool]:
    rows = [Row(prompt=item.prompt_ids, response=item.ids) for item in items]
    packing = Packing.of(settings, policy.model)
    limit = settings.micro_batch_tokens
    found = streamed(stream_logits, policy.model, rows, limit, packing, ranks)
    return [item.kept(_logprobs(logits_TV, item)) for item, logits_TV in zip(items, found, strict=True)]


def _logprobs(logits_TV: Tensor, item: Item) -> list[float]:
    """The log-prob of each of the item's T ids at temperature 1, some rows at a time."""
    ids_T = torch.tensor(item.ids, device=logits_TV.device)
    parts = zip(torch.split(logits_TV, ROWS), torch.split(ids_T, ROWS), strict=True)
    return torch.cat([at(logprobs(rows, tau=1.0), ids) for rows, ids in parts]).tolist()

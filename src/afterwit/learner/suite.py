"""What a policy would say in the place of responses that people approved."""

from __future__ import annotations

from collections.abc import Sequence

from afterwit.core.promotion import Item
from afterwit.learner.policy import Policy
from afterwit.learner.scoring import Packing, Row, stream_logits
from afterwit.learner.settings import LearnerSettings


def kept(policy: Policy, items: Sequence[Item], settings: LearnerSettings) -> list[tuple[Item, bool]]:
    """Each item with whether the policy still takes it: its choices behind the approved ids, in one pass."""
    rows = [Row(prompt=item.prompt_ids, response=item.ids) for item in items]
    packing = Packing.of(settings, policy.model)
    found = stream_logits(policy.model, rows, settings.micro_batch_tokens, packing)
    return [
        (item, item.kept(logits_TV.argmax(dim=-1).tolist()))
        for item, logits_TV in zip(items, found, strict=True)
    ]

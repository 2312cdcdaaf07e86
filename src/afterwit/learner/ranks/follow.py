"""What every rank but the first does: it carries out orders. It opens no store and writes nothing."""

from __future__ import annotations

import logging

import torch

from afterwit.learner.ranks.group import Group
from afterwit.learner.ranks.orders import Order
from afterwit.learner.trainer import Trainer
from afterwit.learner.update import Progress

log = logging.getLogger(__name__)


def follow(trainer: Trainer, group: Group, watch: Progress = lambda phase: None) -> None:
    """Follow until rank 0 ends. RankLost if it, or a rank that this one needs, ends otherwise.

    `watch` is called with every phase of this rank's part of an update.
    """
    at = trainer.follower(group, watch)
    for order in group.orders():
        try:
            _as_order(order).follow(at)
        except Exception as error:
            if not group.is_shared(error):
                raise
            log.info("learn: rank %d: %s: the policy is loaded again", group.rank, error)
            at.policy = None
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


def _as_order(order: object) -> Order:
    return order  # type: ignore[return-value]  # what rank 0 sends are orders

"""The advantages that an update computes for one turn, by its own code and the weights that it starts
from."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from afterwit.learning.policy import Policy
from afterwit.learning.trainer import Trainer
from afterwit.learning.update import score, update_state
from afterwit.lifecycle import Reason
from afterwit.objective.terms import advantages
from afterwit.verdict import JudgedTurn


@dataclass(frozen=True, slots=True, kw_only=True)
class Advantage:
    """One term of the loss at one token: what is pushed up or down."""

    ids: tuple[int, ...]
    values: tuple[float, ...]
    """The advantage of each id, before the term's weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """The lesson of one turn."""

    weights: int
    """The version whose weights were used."""
    exact: bool
    """Whether an update of this turn started, or would start, from these weights."""
    hints: tuple[str, ...]
    """The hints whose teachers ran."""
    chosen: tuple[int, ...]
    """The hint of each token, as an index of `hints`; (): no OPD term."""
    terms: dict[str, list[Advantage]]
    """Term -> an entry per token. Empty: the turn carries no term."""


def explain(trainer: Trainer, sample: JudgedTurn, trained_in: int | None) -> Explained | Reason:
    """The lesson of the turn in version `trained_in`, or now if that is None; a reason if it cannot train.

    If the weights of that update are gone, the newest version's are used, and `exact` is False.
    """
    trainer.turn_to(sample.turn.adapter)
    versions = trainer.versions
    number, exact = versions.newest(), trained_in is None
    version = None if trained_in is None else versions.get(trained_in)
    if version is not None and version.parent is not None and versions.has_weights(version.parent):
        number, exact = version.parent, True
    policy = Policy.load(versions, number, trainer.settings)
    start = number if exact else sample.turn.sampled.oldest_version  # it trained, so it was not too stale
    items, refused = trainer.build([sample], version=start)
    if refused:
        return refused[0].reason
    objective = trainer.objective
    state = update_state(policy, trainer.frozen, items, objective, trainer.settings)
    score(state)
    scored, target = state.samples[0], state.targets[0]
    terms = {}
    for name in objective.terms_of(scored.carried):
        ids_TJ, values_TJ = advantages(name, target.tokens, objective)
        values_TJ = torch.where(scored.mask_T[:, None], values_TJ, torch.zeros_like(values_TJ))
        tokens = zip(ids_TJ.tolist(), values_TJ.tolist(), strict=True)
        terms[name] = [Advantage(ids=tuple(ids), values=tuple(values)) for ids, values in tokens]
    chosen = () if target.hint_T is None else tuple(target.hint_T.tolist())
    return Explained(weights=policy.number, exact=exact, hints=items[0].hints, chosen=chosen, terms=terms)

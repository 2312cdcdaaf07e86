"""Whether an objective learns from the terms a turn carries; `core.terms` decides which."""

from __future__ import annotations

from afterwit.core.terms import Terms, TurnFacts, terms_of
from afterwit.objective.settings import ObjectiveSettings

__all__ = ["Terms", "TurnFacts", "terms_of", "trains_under"]


def trains_under(terms: Terms, settings: ObjectiveSettings) -> bool:
    """Whether this objective learns anything from the turn."""
    rl = terms.rl and settings.has_rl and settings.w_rl > 0
    return rl or (terms.opd and settings.needs_teacher)

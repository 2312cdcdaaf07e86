"""What a teacher on a server can teach, and at which temperature. Pure."""

from __future__ import annotations

from afterwit.core.errors import SettingError
from afterwit.core.turn import scoring_temperature
from afterwit.objective.settings import ObjectiveSettings

DISTILS = ("token_opd", "topk_opd")
"""Files of the terms that read of a teacher a few ids of each place."""
MARGIN = 4
"""Ids beyond those that learn: the update's own pass has other shapes, and may order near equals anew."""
TOLD = 20
"""Ids of each place that the server is asked for at least: by them its scores are brought to the temperature
of the turn. With SmolLM2-135M, on text that is hard for it, they are then wrong by 0.013 nats at 0.6."""


def require_servable(objective: ObjectiveSettings) -> None:
    """SettingError unless the objective reads of a teacher a few ids of each place.

    A server does not tell the whole distribution.
    """
    if not objective.needs_teacher or objective.terms.get("opd") in DISTILS:
        return
    raise SettingError(
        f"objective.objective is {objective.objective!r}, which a teacher on a server (learner.teacher = "
        '"server") cannot teach, because it tells a few ids of each place: set objective.objective = '
        '"hybrid" or "token_opd", or learner.teacher = "base"'
    )


def given_ids(objective: ObjectiveSettings) -> int:
    """How many of the student's ids a teacher scores at each place, which not every server can; 0: none."""
    top_k = objective.needs_teacher and objective.terms.get("opd") == "topk_opd"
    return objective.ids_kept + MARGIN if top_k and objective.subset == "student" else 0


def told_ids(objective: ObjectiveSettings) -> int:
    """How many of its own likeliest ids the server tells of each place."""
    return max(objective.ids_kept, given_ids(objective), TOLD)


def temperature_of(temperature: float) -> float:
    """tau of a turn that a teacher on a server scores: what it was sampled at, but 1 at most.

    Above 1 most of the mass would be of ids that the server does not tell.
    """
    return min(scoring_temperature(temperature), 1.0)

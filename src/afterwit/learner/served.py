"""What a teacher on a server can teach. Pure."""

from __future__ import annotations

from afterwit.core.errors import SettingError
from afterwit.objective.settings import ObjectiveSettings

SUBSETS = ("teacher", "overlap")
"""Of top-K OPD: the ids that learn are among the teacher's own top-K."""


def require_servable(objective: ObjectiveSettings) -> None:
    """SettingError unless the objective reads of a teacher its top-K and the response's log-probs alone.

    A server scores no other ids: neither the student's top-K nor the rest of the vocabulary.
    """
    distils = objective.terms.get("opd")
    if not objective.needs_teacher or distils == "token_opd":
        return
    if distils == "topk_opd" and objective.subset in SUBSETS:
        return
    what = f"objective.objective is {objective.objective!r}"
    if distils == "topk_opd":
        what += f" with objective.subset = {objective.subset!r}"
    raise SettingError(
        f'{what}, which a teacher on a server (learner.teacher = "server") cannot teach, because it scores '
        'its own top-K alone: set objective.subset = "teacher" or "overlap" with a top-K objective, or '
        'objective.objective = "token_opd", or learner.teacher = "base"'
    )

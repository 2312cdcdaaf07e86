"""One step of the optimiser by verl's engine: what an update of the learner calls in place of its own."""

from __future__ import annotations

from afterwit.api.learning import Phase, Progress, Row, UpdateState, require_finite
from afterwit.api.settings import LearnerSettings
from afterwit_hosts.verl.batch import NO_ITEM, batch_of
from afterwit_hosts.verl.loss import UpdateLoss
from afterwit_hosts.verl.policy import engine_in


def epoch(
    state: UpdateState, settings: LearnerSettings, progress: Progress
) -> tuple[dict[str, float], float]:
    """The batch's loss terms, and the gradient's norm before clipping. UpdateRefused if they are not finite.

    verl skips the step if the gradient is not finite. If the loss alone is not, it has taken one: load the
    policy again, as after any error.
    """
    engine, ranks = engine_in(state.policy), state.ranks
    rows = rows_of(state)
    longest = max(ranks.every(max(len(row) for _, row in rows)))
    loss = UpdateLoss(state, progress)
    with ranks.in_lockstep(), engine.train_mode():
        found = engine.train_batch(batch_of(rows, max(longest, settings.micro_batch_tokens)), loss)
    terms, norm = ranks.totals(loss.terms), float(found["metrics"]["grad_norm"])
    require_finite(terms["loss"], norm, state.policy)
    progress(Phase.STEPPED)
    return terms, norm


EMPTY_ROW = Row(prompt=(0,), response=(0,))


def rows_of(state: UpdateState) -> list[tuple[int, Row]]:
    """This rank's rows, each with its item; as many as any rank has: verl cuts all into as many passes."""
    own = [(item, state.items[item].student) for part in state.passes for item in part.chosen]
    most = max(state.ranks.every(len(own)))
    return [*own, *[(NO_ITEM, EMPTY_ROW)] * (most - len(own))]

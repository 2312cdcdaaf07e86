"""The reported effects of an update agree with the weights before and after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from afterwit.chat_format.render import Renderer
from afterwit.learning.batch import Item
from afterwit.learning.metrics import (
    LEAST_OF_EFFECTS,
    PLAIN,
    SHARE_OF_EFFECTS,
    effects,
    plain_kl,
    plain_rows,
    to_measure,
    work,
)
from afterwit.learning.passes import Row, response_logits
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.update import UpdateState, one_epoch, update
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.terms import advantages
from tests.fakes.judged_samples import HINTS, a_sample
from tests.fakes.models import reweighted
from tests.learning.updates import EXACT, Given, items_of, policy_of, quiet, read_only

OBJECTIVE = ObjectiveSettings(hint_selection="shortest")
LORA = replace(EXACT, lora_rank=4)


def mean_logprob(model: torch.nn.Module, row: Row, item: Item) -> float:
    """The mean log-prob of the tokens that train, from whole logits in float64."""
    tau = item.behaviour.tau
    with torch.no_grad():
        (logits_TV,) = response_logits(model, [row])  # type: ignore[arg-type]
    logprobs_TV = torch.log_softmax(logits_TV.double() / tau, dim=-1)
    each = [float(logprobs_TV[at, id]) for at, id in enumerate(row.response)]
    kept = [value for value, forced in zip(each, item.behaviour.forced, strict=True) if not forced]
    return sum(kept) / len(kept)


def state_after(base: Path, items: Sequence[Item], objective: ObjectiveSettings = OBJECTIVE) -> UpdateState:
    """The state of an update that has ended."""
    states: list[UpdateState] = []

    def kept(state: UpdateState, *given: Any) -> tuple[dict[str, float], float]:
        states.append(state)
        return one_epoch(state, *given)

    update(policy_of(base), Given(read_only(base)), items, objective, EXACT, quiet, epoch=kept)
    return states[-1]


@pytest.mark.parametrize(
    "settings", [EXACT, replace(EXACT, loss_backend="plain"), LORA], ids=["whole", "plain head", "lora"]
)
def test_an_effect_is_what_the_weights_before_and_after_say(
    base: Path, renderer: Renderer, settings: LearnerSettings
) -> None:
    samples = [a_sample(renderer, 0), a_sample(renderer, 1, hints=()), a_sample(renderer, 2)]
    items, policy = items_of(samples, renderer, OBJECTIVE), policy_of(base, settings)
    frozen = read_only(base)
    before = [mean_logprob(policy.model, item.student, item) for item in items]
    given = Given(frozen if not settings.lora_rank else policy.trained.base, settings)
    _, found = update(policy, given, items, OBJECTIVE, settings, quiet, measured=2)
    assert [effect.turn for effect in found] == [item.turn for item in items[:2]]
    for effect, item, old in zip(found, items, before, strict=False):
        assert effect.before == pytest.approx(old, abs=1e-9)
        assert effect.after == pytest.approx(mean_logprob(policy.model, item.student, item), abs=1e-9)
        assert effect.after != effect.before
    hinted, unhinted = found
    teacher = items[0].teachers[0]
    assert hinted.hinted_before == pytest.approx(mean_logprob(frozen, teacher, items[0]), abs=1e-9)
    assert unhinted.hinted_before is None


@pytest.mark.parametrize("objective", ["hybrid", "hybrid_token", "hybrid_distill", "combine", "rl"])
def test_its_advantages_are_the_weighted_sum_of_what_each_term_pushes_the_sampled_token_by(
    base: Path, renderer: Renderer, objective: str
) -> None:
    weighted = ObjectiveSettings(objective=objective, hint_selection="shortest", w_rl=0.5, w_opd=2.0)
    sample = a_sample(renderer, 1, tokens=4, forced=(False, True, False, False))
    items = items_of([sample], renderer, weighted)
    state = state_after(base, items, weighted)
    found = effects(state, [0], measured=[0])
    targets = state.targets[0].tokens
    expected = [0.0] * 4
    for term in weighted.terms_of(state.samples[0].carried):
        ids_TJ, values_TJ = advantages(term, targets, weighted)
        for at, (own, ids, values) in enumerate(
            zip(items[0].student.response, ids_TJ.tolist(), values_TJ.tolist(), strict=True)
        ):
            pushed = dict(zip(ids, values, strict=True)).get(own, 0.0)
            expected[at] += 0.0 if at == 1 else weighted.weights[term] * pushed
    assert found[0].advantages == pytest.approx(expected, abs=6e-4)
    assert found[0].advantages[1] == 0.0
    assert any(found[0].advantages)


def test_what_is_of_no_store_has_no_effect(base: Path, renderer: Renderer) -> None:
    items = [replace(item, turn=None) for item in items_of([a_sample(renderer, 0)], renderer, OBJECTIVE)]
    assert effects(state_after(base, items), [0], measured=[]) == ()


def test_what_was_not_measured_says_where_the_response_and_the_teacher_were(
    base: Path, renderer: Renderer
) -> None:
    items = items_of([a_sample(renderer, 0), a_sample(renderer, 1)], renderer, OBJECTIVE)
    found = effects(state_after(base, items), range(2), measured=[1])
    assert [effect.after is None for effect in found] == [True, False]
    assert None not in [effect.hinted_before for effect in found]


def test_turns_with_hints_are_measured_first_and_few_of_a_large_update(renderer: Renderer) -> None:
    samples = [a_sample(renderer, number, hints=() if number % 2 else HINTS) for number in range(6)]
    items = items_of(samples, renderer, OBJECTIVE)
    assert to_measure(items, 4) == [0, 1, 2, 3]
    many = items * (10 * LEAST_OF_EFFECTS // sum(len(item.student) for item in items))
    chosen = to_measure(many, len(many))
    read = sum(len(many[index].student) for index in chosen)
    assert LEAST_OF_EFFECTS < read <= SHARE_OF_EFFECTS * work(many)
    assert all(many[index].hints for index in chosen)
    assert to_measure([replace(items[0], turn=None)], 1) == []


def test_the_kl_of_plain_answers_is_that_of_whole_distributions_from_the_base_to_the_policy(
    base: Path, renderer: Renderer, tmp_path: Path
) -> None:
    rows = plain_rows(renderer)
    assert [
        renderer.decode(row.response).startswith(answer) for row, (_, answer) in zip(rows, PLAIN, strict=True)
    ] == [True] * 4
    came, moved = read_only(base), read_only(reweighted(tmp_path, base, seed=3))
    assert plain_kl(came, came, rows) == 0.0
    each = []
    for row in rows:
        ids = torch.tensor([[*row.prompt, *row.response]])
        p_TV, q_TV = (
            torch.log_softmax(m(ids).logits[0, len(row.prompt) - 1 : -1].double(), -1) for m in (came, moved)
        )
        each += (p_TV.exp() * (p_TV - q_TV)).sum(dim=-1).tolist()
    assert plain_kl(moved, came, rows) == pytest.approx(sum(each) / len(each), rel=1e-4)
    assert sum(each) > 0

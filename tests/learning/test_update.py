"""One update against a plain one: whole batch, no passes, no padding, AdamW by its formula."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from afterwit.chat_format.render import Renderer
from afterwit.errors import UpdateRefused
from afterwit.learning.batch import Item
from afterwit.learning.metrics import is_fresh
from afterwit.learning.models import Masters, adamw
from afterwit.learning.passes import Row, response_logits
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.update import score, update, update_state
from afterwit.objective import evaluate
from afterwit.objective.settings import ObjectiveSettings
from afterwit.turn import Basis
from tests.fakes.judged_samples import a_sample
from tests.fakes.models import reweighted
from tests.learning.updates import (
    EXACT,
    Given,
    frozen,
    furthest,
    items_of,
    moved,
    policy_of,
    quiet,
    read_only,
    weights,
)
from tests.products import some

NINE = [
    ObjectiveSettings(hint_selection=selection, subset=subset, beta=0.1)
    for selection in ("shortest", "sequence_optimal", "token_optimal")
    for subset in ("student", "teacher", "overlap")
]
OBJECTIVES = [
    *NINE,
    ObjectiveSettings(objective="topk_opd", logprob_diff_clip=0, tail_bucket=True, beta=0),
    ObjectiveSettings(objective="token_opd", hint_selection="longest", beta=0),
    ObjectiveSettings(objective="rl", baseline="running", aggregation="batch"),
    ObjectiveSettings(w_rl=0.2, entropy_coef=0.01, beta=0.1),
    ObjectiveSettings(objective="topk_distill", beta=0),
    ObjectiveSettings(objective="topk_distill", k=1000, hint_selection="random", beta=0.1),
    ObjectiveSettings(objective="combine", w_rl=0.5, baseline="running"),
    ObjectiveSettings(hint_selection="random", routing="routed", beta=0),
]
IDS = [f"{o.objective}-{o.hint_selection}-{o.subset}-{o.entropy_coef}" for o in OBJECTIVES]
EACH_TERM = {8, 9, 10, 12, 13, 15}
"""Places of objectives that together have every term. What no term changes is tried with them; the others are
slow."""
BY_EACH = [pytest.param(objective, id=name) for objective, name in zip(OBJECTIVES, IDS, strict=True)]
BY_NINE = [
    pytest.param(*each.values, id=each.id, marks=() if place % 4 == 0 else pytest.mark.slow)
    for place, each in enumerate(BY_EACH[: len(NINE)])
]
"""Each selection with another subset is fast: the product's diagonal."""
BY_TERM = [
    pytest.param(objective, id=name, marks=() if place in EACH_TERM else pytest.mark.slow)
    for place, (objective, name) in enumerate(zip(OBJECTIVES, IDS, strict=True))
]


@pytest.fixture(scope="module")
def student(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that has moved away from the base."""
    return reweighted(tmp_path_factory.mktemp("student"), base, seed=3)


def batch(renderer: Renderer, objective: ObjectiveSettings) -> list[Item]:
    """With and without hints and rewards, several temperatures and lengths, a forced token, raw log-probs."""
    samples = [
        a_sample(renderer, 0, reward=-1, tau=0.6),
        a_sample(renderer, 1, reward=1, hints=() if objective.has_rl else ("Say it in one word.",), tokens=3),
        a_sample(renderer, 2, reward=-1, tau=0.8, tokens=9, forced=(True,) + (False,) * 8),
        a_sample(renderer, 3, reward=0 if objective.has_opd else 1, tokens=1),
        a_sample(renderer, 4, reward=1, basis=Basis.RAW, tau=0.7, hints=("Stop.", "Only stop when done.")),
    ]
    return items_of(samples, renderer, objective)


def plain_update(
    model: torch.nn.Module,
    old: torch.nn.Module,
    items: list[Item],
    objective: ObjectiveSettings,
    *,
    reference_reads_hints: bool = True,
    stop_at_teacher: bool = False,
) -> tuple[dict[str, Tensor], float]:
    """Every row alone through the whole model, the loss by `evaluate`, AdamW by hand.

    With `stop_at_teacher`, for items with one hint: a teacher that would make a disliked answer likelier
    agrees with the policy.

    The weights of `model` that train, by name, after the step from them; and the loss before it.
    """

    def logits(model: torch.nn.Module, row: Row) -> Tensor:
        return model(input_ids=torch.tensor([[*row.prompt, *row.response]])).logits[
            0, len(row.prompt) - 1 : -1
        ]

    current, arrays = [], []
    hinted = [bool(item.teachers) for item in items]
    reads = reference_reads_hints and any(hinted)
    counted = sum(hinted) if reads else len(items)
    for item in items:
        current.append(logits(model, item.student))
        anchor, frozen = item.student, old
        if reads:  # without a hint, the reference is the policy itself: a KL of 0
            anchor, frozen = (item.teachers[0], old) if item.teachers else (item.student, model)
        arrays.append(
            {
                "logits_current": current[-1].detach(),
                "logits_teacher": [logits(old, row) for row in item.teachers] or None,
                "logits_base": logits(frozen, anchor).detach() if objective.beta else None,
                "ids": torch.tensor(item.student.response),
                "behaviour": torch.tensor(item.behaviour.logprobs).double(),
                "mask": ~torch.tensor(item.behaviour.forced),
                "basis": item.behaviour.basis.value,
                "reward": item.reward or 0.0,
                "tau": item.behaviour.tau,
            }
        )
        if arrays[-1]["logits_teacher"]:
            arrays[-1]["logits_teacher"] = torch.stack(arrays[-1]["logits_teacher"])
        if stop_at_teacher and item.teachers and item.disliked:
            own_TV, (hinted_TV,) = arrays[-1]["logits_current"], arrays[-1]["logits_teacher"]
            ids_T1, tau = arrays[-1]["ids"][:, None], item.behaviour.tau
            apart_T1 = log_softmax(hinted_TV / tau, -1) - log_softmax(own_TV / tau, -1)
            if apart_T1.gather(-1, ids_T1)[arrays[-1]["mask"]].sum() > 0:
                arrays[-1]["logits_teacher"] = own_TV[None]
    found = evaluate(arrays, replace(objective, beta=objective.beta * len(items) / counted))
    torch.autograd.backward(current, found.gradients)
    named = {name: own for name, own in model.named_parameters() if own.requires_grad}
    return _adamw(named, EXACT), float(found.loss)


def _adamw(named: dict[str, torch.nn.Parameter], settings: LearnerSettings) -> dict[str, Tensor]:
    """The first step, where both bias corrections cancel the decays."""
    norm = math.sqrt(sum(p.grad.square().sum().item() for p in named.values()))
    scale = min(1.0, settings.clip / (norm + 1e-6))
    eps = max(1e-8, settings.adam_eps / math.sqrt(sum(p.numel() for p in named.values())))
    after = {}
    for name, p in named.items():
        decay = settings.weight_decay if p.dim() > 1 else 0.0
        gradient = p.grad * scale
        after[name] = (
            p * (1 - settings.lr * decay) - settings.lr * gradient / (gradient.abs() + eps)
        ).detach()
    return after


@pytest.mark.parametrize("objective", [*BY_NINE, *BY_EACH[len(NINE) :]])
def test_an_update_is_the_plain_update(
    objective: ObjectiveSettings, student: Path, base: Path, renderer: Renderer
) -> None:
    items = batch(renderer, objective)
    before = policy_of(student)
    expected, loss = plain_update(before.model, read_only(base), items, objective)
    found, metrics = moved(student, base, items, objective)
    assert metrics["loss"] == pytest.approx(loss, rel=1e-10)
    # AdamW's first step is nearly the gradient's sign, which magnifies rounding where a gradient is nearly 0.
    assert furthest(found, expected) < 1e-7
    assert furthest(found, weights(before)) > 1e-4


@pytest.mark.parametrize(
    "objective",
    [
        ObjectiveSettings(beta=0.1),
        ObjectiveSettings(objective="topk_opd", tail_bucket=True, aggregation="batch", beta=0),
        ObjectiveSettings(objective="token_opd", beta=0),
        ObjectiveSettings(objective="topk_distill", beta=0),
    ],
    ids=lambda objective: objective.objective,
)
@pytest.mark.parametrize("head", ["fused", "plain"])
def test_a_disliked_answer_that_the_teacher_would_make_likelier_is_not_distilled(
    head: str, objective: ObjectiveSettings, student: Path, base: Path, renderer: Renderer
) -> None:
    rewards, hints = (-1, 1, -1, 0, -1, -1), ("Say it in one word.",)
    samples = [
        a_sample(renderer, at, reward=reward, hints=hints, tau=0.6 + 0.1 * at)
        for at, reward in enumerate(rewards)
    ]
    items = items_of(samples, renderer, objective)
    assert [item.disliked for item in items] == [reward < 0 for reward in rewards]
    policy, settings = policy_of(student), replace(EXACT, stop_at_teacher=True, loss_backend=head)
    state = update_state(policy, Given(read_only(base), settings), items, objective, settings)
    score(state)
    overtaken = [sample.overtaken for sample in state.samples]
    assert {one for one, item in zip(overtaken, items, strict=True) if item.disliked} == {True, False}
    assert not any(one for one, item in zip(overtaken, items, strict=True) if not item.disliked)
    expected, loss = plain_update(policy.model, read_only(base), items, objective, stop_at_teacher=True)
    found, metrics = moved(student, base, items, objective, settings)
    assert metrics["loss"] == pytest.approx(loss, rel=1e-9)
    assert metrics["past_teacher"] == sum(overtaken)
    assert furthest(found, expected) < 1e-7
    whole, _ = moved(student, base, items, objective)
    assert furthest(found, whole) > 1e-4


@pytest.mark.parametrize("disliked", [True, False])
def test_a_policy_is_taught_a_disliked_answer_only_while_its_teacher_avoids_it_more(
    disliked: bool, student: Path, base: Path, renderer: Renderer
) -> None:
    """Of two models one avoids it more, and each is the other's teacher."""
    objective = ObjectiveSettings(objective="topk_opd", beta=0.0)
    settings = replace(EXACT, stop_at_teacher=True)
    (item,) = items_of([a_sample(renderer, 0, reward=-1)], renderer, objective)
    item = replace(item, teachers=(item.student,), hints=("",), disliked=disliked)
    norms = []
    for policy, teacher in ((student, base), (base, student)):
        _, metrics = moved(policy, teacher, [item], objective, settings)
        norms.append(metrics["grad_norm"])
    assert max(norms) > 1e-3
    assert (min(norms) == 0.0) is disliked


def test_a_reference_that_reads_no_hints_is_the_base_on_the_plain_prompt(
    student: Path, base: Path, renderer: Renderer
) -> None:
    objective, settings = ObjectiveSettings(beta=0.3), replace(EXACT, reference_reads_hints=False)
    items = batch(renderer, objective)
    expected, loss = plain_update(
        policy_of(student).model, read_only(base), items, objective, reference_reads_hints=False
    )
    found, metrics = moved(student, base, items, objective, settings)
    assert metrics["loss"] == pytest.approx(loss, rel=1e-10)
    assert furthest(found, expected) < 1e-7


@pytest.mark.parametrize("objective", some(2, BY_TERM))
def test_cutting_the_batch_into_passes_changes_nothing(
    objective: ObjectiveSettings, student: Path, base: Path, renderer: Renderer
) -> None:
    items = batch(renderer, objective)
    settings = replace(EXACT, epochs=2)
    whole, of_whole = moved(student, base, items, objective, settings)
    apart, of_parts = moved(student, base, items, objective, replace(settings, micro_batch_tokens=1))
    assert furthest(whole, apart) < 1e-7
    assert of_parts == pytest.approx(of_whole, rel=1e-9, abs=1e-12)


def test_the_order_of_the_batch_changes_nothing(student: Path, base: Path, renderer: Renderer) -> None:
    items = batch(renderer, NINE[0])
    forward, _ = moved(student, base, items, NINE[0])
    backward, _ = moved(student, base, items[::-1], NINE[0])
    assert furthest(forward, backward) < 1e-7


@pytest.mark.parametrize("objective", [*BY_TERM[:11], BY_TERM[13], BY_TERM[15]])
def test_a_student_that_is_its_teacher_learns_nothing_from_an_empty_hint(
    objective: ObjectiveSettings, base: Path, renderer: Renderer
) -> None:
    """The spliced prompt is the prompt, the kernels are the same: distillation's gradient is exactly 0."""
    opd_only = replace(objective, w_rl=0.0, beta=0.0)
    items = items_of([a_sample(renderer, 0, tau=0.6), a_sample(renderer, 1, tau=0.6)], renderer, opd_only)
    empty = [replace(item, teachers=(item.student,), hints=("",)) for item in items]
    _, metrics = moved(base, base, empty, opd_only)
    assert metrics["teacher_gap"] == 0.0
    assert metrics["overlap"] == objective.ids_kept
    assert metrics["grad_norm"] < 1e-12
    _, hinted = moved(base, base, items, opd_only)
    assert hinted["grad_norm"] > 1e-3


def test_another_teacher_gives_another_gradient(
    student: Path, base: Path, renderer: Renderer, tmp_path: Path
) -> None:
    objective = ObjectiveSettings(w_rl=0.0, beta=0.0)
    items = batch(renderer, ObjectiveSettings(w_rl=1.0))
    other = reweighted(tmp_path, base, seed=9)
    one, _ = moved(student, base, items, objective)
    another, _ = moved(student, other, items, objective)
    assert furthest(one, another) > 1e-4


def test_a_live_teacher_is_the_policy_itself_at_the_updates_start(
    student: Path, base: Path, renderer: Renderer
) -> None:
    objective = ObjectiveSettings(beta=0.0)
    settings = replace(EXACT, teacher="live", epochs=2)
    items = batch(renderer, objective)
    live, _ = moved(student, base, items, objective, settings)
    frozen_student, _ = moved(student, student, items, objective, replace(settings, teacher="base"))
    assert furthest(live, frozen_student) < 1e-12


def test_old_log_probs_stay_those_of_the_updates_start(student: Path, base: Path, renderer: Renderer) -> None:
    """After the first epoch the ratio has left 1; during it, it is 1 by definition and not measured."""
    objective = ObjectiveSettings()
    items = batch(renderer, objective)
    _, once = moved(student, base, items, objective)
    _, twice = moved(student, base, items, objective, replace(EXACT, epochs=2))
    assert "ratio_mean" not in once
    assert twice["ratio_distance"] > 1e-4
    assert {name: twice[name] for name in once} == once


def test_no_step_follows_one_that_moved_the_policy_far_enough(
    student: Path, base: Path, renderer: Renderer
) -> None:
    objective = ObjectiveSettings()
    items = batch(renderer, objective)
    once, _ = moved(student, base, items, objective)
    thrice, _ = moved(student, base, items, objective, replace(EXACT, epochs=3))
    stopped, found = moved(student, base, items, objective, replace(EXACT, epochs=3, max_move=1e-5))
    assert furthest(once, stopped) == 0.0
    assert found["ratio_distance"] > 1e-5
    near, _ = moved(student, base, items, objective, replace(EXACT, epochs=3, max_move=100.0))
    assert furthest(thrice, near) == 0.0
    assert furthest(once, near) > 1e-4


def test_the_norm_is_reported_before_it_is_clipped(student: Path, base: Path, renderer: Renderer) -> None:
    objective = ObjectiveSettings()
    items = batch(renderer, objective)
    _, loose = moved(student, base, items, objective, replace(EXACT, clip=1e9))
    _, tight = moved(student, base, items, objective, replace(EXACT, clip=1e-3))
    assert tight["grad_norm"] == loose["grad_norm"] > 1e-3


def test_a_step_that_is_not_finite_is_refused_and_moves_nothing(base: Path, renderer: Renderer) -> None:
    objective = ObjectiveSettings(is_cap=math.inf)
    broken = a_sample(renderer, 0, logprobs=(-1e30,) * 6)
    items = items_of([broken, a_sample(renderer, 1)], renderer, objective)
    policy = policy_of(base)
    before = weights(policy)
    with pytest.raises(UpdateRefused, match="no step was taken"):
        update(policy, Given(frozen(base), EXACT), items, objective, EXACT, quiet)
    assert furthest(weights(policy), before) == 0.0
    assert not policy.optimizer.state


def test_at_the_base_the_reference_kl_has_no_gradient(base: Path, renderer: Renderer) -> None:
    objective = ObjectiveSettings(w_rl=0.0, beta=1.0)
    items = [
        replace(item, teachers=(), hints=(), reward=None) for item in batch(renderer, ObjectiveSettings())
    ]
    _, metrics = moved(base, base, items, objective)
    assert metrics["reference_kl"] == pytest.approx(0.0, abs=1e-12)
    assert metrics["grad_norm"] < 1e-12


def test_bfloat16_adds_its_passes_up_in_float32_and_keeps_what_rounding_would_lose(
    base: Path, renderer: Renderer
) -> None:
    objective = ObjectiveSettings()
    settings = LearnerSettings(lora_rank=0, dtype="bfloat16", device="cpu", lr=1e-6)
    items = batch(renderer, objective)
    policy = policy_of(base, settings)
    before = weights(policy)
    update(policy, Given(frozen(base, torch.bfloat16), settings), items, objective, settings, quiet)
    after = weights(policy)
    assert all(master.dtype is torch.float32 for master in after.values())
    assert 0 < furthest(before, after) < 2e-6
    for name, own in policy.model.named_parameters():
        assert own.dtype is torch.bfloat16
        assert own.grad is None
        assert torch.equal(own, after[name].bfloat16())


def test_bfloat16_moves_the_way_float32_does(base: Path, renderer: Renderer) -> None:
    """The gradients of both agree to a few per cent, pass by pass or whole."""
    objective = ObjectiveSettings()
    items = batch(renderer, objective)
    norms = []
    for dtype, tokens in (("float32", 4096), ("bfloat16", 4096), ("bfloat16", 1)):
        settings = replace(EXACT, dtype=dtype, micro_batch_tokens=tokens)
        policy = policy_of(base, settings)
        model = frozen(base, getattr(torch, dtype))
        metrics, _ = update(policy, Given(model, settings), items, objective, settings, quiet)
        norms.append(metrics["grad_norm"])
    assert norms[1] == pytest.approx(norms[0], rel=0.05)
    assert norms[2] == pytest.approx(norms[0], rel=0.05)


@pytest.mark.parametrize(("basis", "tau"), [(Basis.PROCESSED, 0.6), (Basis.RAW, 0.6), (Basis.PROCESSED, 1.0)])
def test_an_engine_that_sampled_from_the_same_weights_shows_no_mismatch(
    base: Path, renderer: Renderer, basis: Basis, tau: float
) -> None:
    plain = a_sample(renderer, 0, tau=tau, basis=basis)
    row = Row(prompt=plain.turn.prompt_ids, response=plain.turn.sampled.ids)
    (logits_TV,) = response_logits(read_only(base), [row])
    divisor = tau if basis is Basis.PROCESSED else 1.0
    chosen = torch.log_softmax(logits_TV / divisor, -1).gather(-1, torch.tensor(row.response)[:, None])[:, 0]
    same = a_sample(renderer, 0, tau=tau, basis=basis, logprobs=tuple(chosen.tolist()))
    _, metrics = moved(base, base, items_of([same], renderer, ObjectiveSettings()), ObjectiveSettings())
    assert metrics["mismatch_max"] < 1e-6  # the store and the learner keep log-probs in float32


@pytest.mark.parametrize(
    ("versions", "cache_version", "fresh"),
    [((2, 2, 2), 2, True), ((2, 2, 2), None, True), ((2, 2, 2), 1, False), ((1, 2, 2), 1, False)],
)
def test_tokens_that_attended_to_an_older_versions_cache_are_no_fresh_mismatch(
    renderer: Renderer, versions: tuple[int, ...], cache_version: int | None, fresh: bool
) -> None:
    sampled = a_sample(renderer, 0, tokens=3, versions=versions, cache_version=cache_version)
    (item,) = items_of([sampled], renderer, ObjectiveSettings())
    assert is_fresh(replace(item, staleness=2 - min(versions))) is fresh


@pytest.mark.parametrize("count", [4, 900])
def test_a_gradient_of_the_norm_of_adam_eps_moves_each_weight_by_half_the_rate(count: int) -> None:
    module = torch.nn.Linear(count, 1, bias=False, dtype=torch.float64)
    before = module.weight.detach().clone()
    masters = Masters(module)
    settings = replace(EXACT, weight_decay=0.0, adam_eps=0.03)
    for parameter in masters.named.values():
        parameter.grad = torch.full_like(parameter, settings.adam_eps / math.sqrt(count))
    adamw(masters, settings).step()
    moved = (before - next(iter(masters.named.values()))).detach()
    assert moved.flatten().tolist() == pytest.approx([settings.rate / 2] * count, rel=1e-9)

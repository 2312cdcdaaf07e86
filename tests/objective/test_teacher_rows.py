"""A teacher's rows from elsewhere: the same loss as by its logits, against a second statement in float64."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from afterwit.objective import ObjectiveSettings
from afterwit.objective.sample import (
    Sample,
    SampleLoss,
    TeacherRows,
    candidates_of_rows,
    denominators,
    prepare,
    sample_loss,
)
from afterwit.objective.terms import logprobs, top_k

SEEDS = st.integers(0, 2**32 - 1)
TOKENS, VOCABULARY = 4, 9


def logits(seed: int, tokens: int = TOKENS) -> tuple[Tensor, Tensor, Tensor]:
    """The policy's and a teacher's [T, V], and the sampled ids [T]."""
    rng = np.random.default_rng(seed)
    policy, teacher = (torch.tensor(rng.normal(size=(tokens, VOCABULARY)) * 2) for _ in range(2))
    return policy, teacher, torch.tensor(rng.integers(VOCABULARY, size=tokens))


def rows_of(teacher: Tensor, ids: Tensor, widths: list[int], *, width: int | None = None) -> TeacherRows:
    """The sampled id, then the likeliest others; `widths` ids of each token, padded with the sampled one."""
    width = width or max(widths)
    all_TV = logprobs(teacher, 1.0)
    made: dict[str, list[list[Any]]] = {"ids": [], "logprobs": [], "valid": []}
    for at, (own, kept) in enumerate(zip(ids.tolist(), widths, strict=True)):
        others = [each for each in all_TV[at].argsort(descending=True).tolist() if each != own]
        row = [own, *others][:kept]
        made["ids"].append(row + [own] * (width - kept))
        made["logprobs"].append([all_TV[at, each].item() for each in row] + [0.0] * (width - kept))
        made["valid"].append([True] * kept + [False] * (width - kept))
    logprobs_TK = torch.tensor(made["logprobs"], dtype=torch.float64)
    return TeacherRows(
        sampled_T=logprobs_TK[:, 0],
        ids_TK=torch.tensor(made["ids"]),
        logprobs_TK=logprobs_TK,
        valid_TK=torch.tensor(made["valid"]),
    )


def a_sample(ids: Tensor, rows: TeacherRows | None, **changes: Any) -> Sample:
    fields: dict[str, Any] = {
        "ids_T": ids,
        "mask_T": torch.ones(len(ids), dtype=torch.bool),
        "behaviour_T": None,
        "tau": 1.0,
        "advantage": None,
        "hints": 0,
        "teacher_rows": () if rows is None else (rows,),
    }
    return Sample(**fields | changes)


def loss_of(policy: Tensor, sample: Sample, settings: ObjectiveSettings) -> tuple[SampleLoss, Tensor]:
    """A sample's loss alone, and its gradient."""
    leaf = policy.clone().requires_grad_()
    target = prepare(sample, policy, iter(()), settings)
    found = sample_loss(leaf, sample, target, denominators([sample], settings), settings)
    (gradient,) = torch.autograd.grad(found.loss, leaf)
    return found, gradient


def settings(objective: str, **more: Any) -> ObjectiveSettings:
    return ObjectiveSettings(objective=objective, beta=0.0, **{"subset": "teacher"} | more)


@given(SEEDS)
def test_rows_of_the_whole_vocabulary_give_the_exact_kl(seed: int) -> None:
    policy, teacher, ids = logits(seed)
    rows = rows_of(teacher, ids, [VOCABULARY] * TOKENS)
    found, gradient = loss_of(policy, a_sample(ids, rows), settings("topk_distill"))
    leaf = policy.clone().requires_grad_()
    now_TV, teacher_TV = logprobs(leaf, 1.0), logprobs(teacher, 1.0)
    exact = (now_TV.exp() * (now_TV - teacher_TV)).sum(dim=-1).mean()
    (expected,) = torch.autograd.grad(exact, leaf)
    assert float(found.loss) == pytest.approx(float(exact), abs=1e-5)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-5)


@given(SEEDS, st.lists(st.integers(0, VOCABULARY - 1), min_size=TOKENS, max_size=TOKENS))
def test_a_few_ids_and_the_tail_are_the_kl_of_these_bins(seed: int, widths: list[int]) -> None:
    if not any(widths):
        return
    policy, teacher, ids = logits(seed)
    rows = rows_of(teacher, ids, widths)
    found, _ = loss_of(policy, a_sample(ids, rows), settings("topk_distill"))
    now, told = (logprobs(each, 1.0).exp().numpy() for each in (policy, teacher))
    by_token = []
    for at, kept in enumerate(widths):
        if kept:
            row = rows.ids_TK[at, :kept].tolist()
            ours = [*(now[at, each] for each in row), 1 - sum(now[at, each] for each in row)]
            theirs = [*(told[at, each] for each in row), 1 - sum(told[at, each] for each in row)]
            by_token.append(sum(p * math.log(p / q) for p, q in zip(ours, theirs, strict=True)))
    assert float(found.loss) == pytest.approx(sum(by_token) / len(by_token), abs=1e-9)


@given(SEEDS, st.integers(1, 5))
def test_at_the_sampled_ids_the_advantage_is_teacher_minus_student(seed: int, width: int) -> None:
    policy, teacher, ids = logits(seed)
    rows = rows_of(teacher, ids, [width, 0, width, width])
    found, gradient = loss_of(policy, a_sample(ids, rows), settings("token_opd"))
    now_TV, told_TV = logprobs(policy, 1.0), logprobs(teacher, 1.0)
    expected = torch.zeros_like(policy)
    value = 0.0
    for at in (0, 2, 3):
        gap = float(told_TV[at, ids[at]] - now_TV[at, ids[at]])
        slope = -now_TV[at].exp()
        slope[ids[at]] += 1
        expected[at] = -gap * slope / 3
        value -= gap / 3
    assert float(found.loss) == pytest.approx(value, abs=1e-12)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("objective", ["token_opd", "topk_opd", "topk_distill", "combine", "hybrid_token"])
def test_a_teacher_equal_to_the_student_moves_nothing(objective: str) -> None:
    policy, _, ids = logits(1)
    rows = rows_of(policy, ids, [3, 0, 1, 4])
    _, gradient = loss_of(policy, a_sample(ids, rows), settings(objective))
    torch.testing.assert_close(gradient, torch.zeros_like(policy), rtol=0, atol=1e-12)


@pytest.mark.parametrize("objective", ["token_opd", "topk_opd", "topk_distill", "combine"])
def test_a_token_without_a_row_carries_no_gradient_of_distillation(objective: str) -> None:
    policy, teacher, ids = logits(2)
    rows = rows_of(teacher, ids, [3, 0, 0, 2])
    _, gradient = loss_of(policy, a_sample(ids, rows), settings(objective))
    assert gradient[1:3].abs().max() == 0
    assert gradient[[0, 3]].abs().max() > 0.01


def test_padding_changes_nothing() -> None:
    policy, teacher, ids = logits(3)
    narrow, wide = (rows_of(teacher, ids, [2, 3, 0, 1], width=width) for width in (3, 8))
    for objective in ("topk_opd", "topk_distill", "token_opd"):
        one, other = (loss_of(policy, a_sample(ids, rows), settings(objective)) for rows in (narrow, wide))
        assert float(one[0].loss) == pytest.approx(float(other[0].loss), abs=1e-14)
        torch.testing.assert_close(one[1], other[1], rtol=0, atol=1e-14)


def test_reward_trains_every_token_and_distillation_those_with_a_row() -> None:
    policy, teacher, ids = logits(4)
    rows = rows_of(teacher, ids, [3, 0, 0, 2])
    both, _ = loss_of(policy, a_sample(ids, rows, advantage=0.5), settings("hybrid_distill"))
    alone, _ = loss_of(policy, a_sample(ids, rows), settings("topk_distill"))
    reward, _ = loss_of(policy, a_sample(ids, None, advantage=0.5), settings("rl"))
    assert float(both.loss) == pytest.approx(float(alone.loss) + float(reward.loss), abs=1e-12)
    assert float(reward.loss) == pytest.approx(-0.1), "w_rl is 0.2"


def test_what_does_not_fit_a_sample_is_refused() -> None:
    _, teacher, ids = logits(5)
    rows = rows_of(teacher, ids, [2] * TOKENS)
    for changes, word in (
        ({"hints": 1}, "1 teachers run"),
        ({"ids_T": ids[:2], "mask_T": torch.ones(2, dtype=torch.bool)}, "2 ids but 4"),
    ):
        with pytest.raises(ValueError, match=word):
            a_sample(ids, rows, **changes)
    with pytest.raises(ValueError, match="no token is distilled"):
        replace(rows, valid_TK=torch.zeros_like(rows.ids_TK, dtype=torch.bool))
    with pytest.raises(ValueError, match="shapes"):
        replace(rows, ids_TK=rows.ids_TK[:, :1])
    with pytest.raises(ValueError, match="2 sampled ids but 4 rows"):
        replace(rows, sampled_T=rows.sampled_T[:2])


def test_the_students_own_ids_cannot_be_taught_by_rows_of_the_teachers() -> None:
    policy, teacher, ids = logits(6)
    rows = rows_of(teacher, ids, [2] * TOKENS)
    with pytest.raises(ValueError, match="subset must be 'teacher' or 'overlap'"):
        loss_of(policy, a_sample(ids, rows), settings("topk_opd", subset="student"))


def test_the_ids_that_both_name_are_taught_as_by_the_teacher_itself() -> None:
    policy, teacher, ids = logits(7)
    rows = rows_of(teacher, ids, [VOCABULARY, 0, VOCABULARY, VOCABULARY])
    of_rows = settings("topk_opd", subset="overlap", k=VOCABULARY)
    _, by_rows = loss_of(policy, a_sample(ids, rows), of_rows)
    leaf, sample = policy.clone().requires_grad_(), a_sample(ids, None, hints=1)
    target = prepare(sample, policy, iter((teacher,)), of_rows)
    loss = sample_loss(leaf, sample, target, denominators([sample], of_rows), of_rows).loss
    (by_teacher,) = torch.autograd.grad(loss, leaf)
    torch.testing.assert_close(by_rows[[0, 2, 3]] * 3 / 4, by_teacher[[0, 2, 3]], rtol=0, atol=1e-12)
    assert by_rows[1].abs().max() == 0


def test_a_token_that_does_not_train_is_in_no_mean() -> None:
    policy, teacher, ids = logits(8)
    mask_T = torch.tensor([True, False, True, True])
    everywhere, where_it_trains = (rows_of(teacher, ids, widths) for widths in ([3, 3, 3, 3], [3, 0, 3, 3]))
    one, other = (
        loss_of(policy, a_sample(ids, rows, mask_T=mask_T), settings("topk_distill"))
        for rows in (everywhere, where_it_trains)
    )
    assert float(one[0].loss) == pytest.approx(float(other[0].loss), abs=1e-14)
    torch.testing.assert_close(one[1], other[1], rtol=0, atol=1e-14)


def test_at_ids_of_which_it_said_nothing_a_teacher_is_no_number() -> None:
    rows = TeacherRows(
        sampled_T=torch.tensor([-1.0, -2.0]),
        ids_TK=torch.tensor([[5, 2], [7, 7]]),
        logprobs_TK=torch.tensor([[-0.5, -1.5], [-2.0, 0.0]]),
        valid_TK=torch.tensor([[True, True], [True, False]]),
    )
    found = rows.at(torch.tensor([[2, 3, 5], [7, 1, 1]]))
    assert found[0, [0, 2]].tolist() == [-1.5, -0.5]
    assert found[1, 0] == -2.0
    assert found.isnan().tolist() == [[False, True, False], [False, True, True]]


def test_padding_is_that_of_each_hints_own_rows() -> None:
    policy, teacher, ids = logits(4)
    whole, padded = rows_of(teacher, ids, [3, 3, 3, 3]), rows_of(teacher, ids, [3, 1, 3, 2])
    whole = replace(whole, valid_TK=None)
    old_TV = logprobs(policy, 1.0)
    old_T = old_TV.gather(-1, ids[:, None])[:, 0]
    found = candidates_of_rows(
        (whole, padded), top_k(policy, 3), old_T, lambda asked: old_TV.gather(-1, asked)
    )
    assert found.native_valid_HTK is not None
    assert found.native_valid_HTK[0].all()
    assert found.native_valid_HTK[1].sum(dim=-1).tolist() == [3, 1, 3, 2]

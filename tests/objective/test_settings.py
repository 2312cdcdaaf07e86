"""Settings refuse what they cannot mean, alone and nested in a pydantic model."""

import pytest
import torch
from pydantic import BaseModel, ValidationError

from afterwit.objective import ObjectiveSettings
from afterwit.objective.settings import Objective
from afterwit.objective.terms import RL, Term, TokenTargets

ONE_N = torch.ones(3)
THREE = TokenTargets(
    ids_N=ONE_N.long(), old_N=ONE_N, correction_N=ONE_N, advantage_N=ONE_N, gap_N=ONE_N, kept=None
)


class Config(BaseModel):
    objective: ObjectiveSettings = ObjectiveSettings()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"objective": "ppo"}, "objective is 'ppo', but must be one of hybrid"),
        ({"subset": "all"}, "subset is 'all'"),
        ({"hint_selection": "best"}, "hint_selection is 'best'"),
        ({"baseline": "mean"}, "baseline is 'mean'"),
        ({"aggregation": "sum"}, "aggregation is 'sum'"),
        ({"routing": "some"}, "routing is 'some'"),
        ({"confident_above": 1.5}, "confident_above is 1.5"),
        ({"k": 0}, "k is 0"),
        ({"k": 2.5}, "k is 2.5"),
        ({"k": True}, "k is True"),
        ({"w_opd": float("inf")}, "w_opd is inf, but must be below inf"),
        ({"beta": -0.1}, "beta is -0.1"),
        ({"w_rl": float("nan")}, "w_rl is nan"),
        ({"eps_lo": 1.5}, "eps_lo is 1.5"),
        ({"is_cap": 0.0}, "is_cap is 0.0"),
        ({"baseline_decay": 1.0}, "baseline_decay is 1.0"),
    ],
)
def test_a_wrong_value_is_named(given, said):
    with pytest.raises(ValueError, match=said):
        ObjectiveSettings(**given)


def test_pydantic_nests_the_settings_and_refuses_unknown_keys():
    assert Config.model_validate({"objective": {"k": 8}}).objective == ObjectiveSettings(k=8)
    with pytest.raises(ValidationError, match=r"objective\.kk"):
        Config.model_validate({"objective": {"kk": 8}})
    with pytest.raises(ValidationError, match="beta is -1"):
        Config.model_validate({"objective": {"beta": -1}})


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, 4),
        ({"objective": "topk_distill"}, 50),
        ({"objective": "topk_distill", "k": 7}, 7),
        ({"k": 50}, 50),
    ],
)
def test_as_many_ids_are_kept_as_published_unless_told(settings, kept):
    assert ObjectiveSettings(**settings).ids_kept == kept


@pytest.mark.parametrize(
    ("settings", "needed"),
    [({}, True), ({"objective": "rl"}, False), ({"w_opd": 0.0}, False), ({"objective": "token_opd"}, True)],
)
def test_a_teacher_is_needed_if_distillation_has_weight(settings, needed):
    assert ObjectiveSettings(**settings).needs_teacher == needed


def test_an_objective_reports_terms_that_are_known():
    with pytest.raises(ValueError, match="an objective reports rl, opd, combine, not kl"):
        Objective(terms={"opd": "topk_opd", "kl": "mine"})


@pytest.mark.parametrize(
    ("loss", "form"),
    [
        (lambda now_NJ: now_NJ, r"\[3, 1\]"),
        (lambda now_NJ: now_NJ.mean(), r"\[\]"),
        (lambda now_NJ: None, "NoneType"),
    ],
)
def test_a_terms_loss_has_one_number_for_each_token(loss, form):
    term = Term(loss=lambda now_NJ, targets, settings: loss(now_NJ), advantages=RL.advantages)
    with pytest.raises(ValueError, match=rf"a term's loss is {form}, but must be \[3\]"):
        term.checked(torch.zeros(3, 1), THREE, ObjectiveSettings())


@pytest.mark.parametrize(("shape", "form"), [((3,), r"\[3\]"), ((3, 2), r"\[3, 2\]"), ((2, 1), r"\[2, 1\]")])
def test_a_terms_advantages_are_those_of_its_ids(shape, form):
    term = Term(loss=RL.loss, advantages=lambda targets, settings: (torch.ones(3, 1), torch.ones(shape)))
    with pytest.raises(ValueError, match=rf"ids \[3, 1\] with advantages {form}, not both \[3, J\]"):
        term.moved(THREE, ObjectiveSettings())

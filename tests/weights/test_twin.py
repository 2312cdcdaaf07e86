"""The same model with other weights: equal ones are shared, others are not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from afterwit.weights.weights import twin
from tests.fakes.adapters import plain

IDS = torch.tensor([[5, 6, 7, 8, 9]])


def test_a_twin_without_values_of_its_own_shares_every_weight_and_computes_the_same(family: Path) -> None:
    model = plain(family)
    other = twin(model, {})
    pairs = zip(model.named_parameters(), other.named_parameters(), strict=True)
    assert all(name == same and own is its for (name, own), (same, its) in pairs)
    assert all(one is not two for one, two in zip(model.modules(), other.modules(), strict=True))
    assert torch.equal(model(IDS).logits, other(IDS).logits)


def test_a_twin_has_its_own_values_and_leaves_the_models(family: Path) -> None:
    model = plain(family)
    before = model(IDS).logits
    values = {name: nn.Parameter(torch.zeros_like(own)) for name, own in model.named_parameters()}
    assert not twin(model, values)(IDS).logits.any()
    assert torch.equal(model(IDS).logits, before)


def test_tied_weights_stay_tied(family: Path) -> None:
    model = plain(family)
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    name = next(name for name, own in model.named_parameters() if own is model.get_input_embeddings().weight)
    value = nn.Parameter(torch.ones_like(model.get_input_embeddings().weight))
    other = twin(model, {name: value})
    assert other.get_input_embeddings().weight is value
    assert (other.get_output_embeddings().weight is value) == tied


def test_values_that_do_not_fit_are_refused(family: Path) -> None:
    model = plain(family)
    name = next(name for name, _ in model.named_parameters())
    with pytest.raises(ValueError, match=r"but its value \(1,\)"):
        twin(model, {name: nn.Parameter(torch.ones(1))})
    with pytest.raises(KeyError, match=r"no\.such\.weight"):
        twin(model, {"no.such.weight": nn.Parameter(torch.ones(1))})

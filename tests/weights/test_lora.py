"""Merging an adapter, against PEFT's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from afterwit.weights.adapter import CONFIG, TENSORS, Lora, lora_of
from afterwit.weights.weights import adapted, merged, pairs_of, twin
from tests.fakes.adapters import by_peft, noise, plain

IDS = torch.tensor([[5, 6, 7, 8, 9]])


@pytest.fixture
def adapter(family: Path, tmp_path: Path) -> Path:
    return noise(tmp_path / "adapter", family, seed=1, rank=3, alpha=7.5)


def test_a_merged_model_is_pefts_merged_model_and_computes_what_the_adapted_one_does(
    family: Path, adapter: Path
) -> None:
    base, theirs = plain(family, torch.float64), by_peft(family, adapter)
    ours = twin(base, merged(base, pairs_of(adapter), 2.5))
    torch.testing.assert_close(ours(IDS).logits, theirs(IDS).logits, rtol=0, atol=1e-4)  # norms are in fp32
    named = dict(theirs.merge_and_unload().named_parameters())
    for name, own in ours.named_parameters():
        torch.testing.assert_close(own, named[name], rtol=0, atol=1e-12)


def test_merging_moves_just_the_adapted_layers_and_leaves_the_base(family: Path, adapter: Path) -> None:
    base, untouched = plain(family), plain(family)
    ours = adapted(base, pairs_of(adapter), 2.5)
    for (name, own), kept in zip(base.named_parameters(), untouched.parameters(), strict=True):
        assert torch.equal(own, kept)
        new = dict(ours.named_parameters())[name]
        assert (new is own) == (name.removesuffix(".weight") not in pairs_of(adapter))
    assert ours.get_output_embeddings().weight is base.get_output_embeddings().weight


def test_in_full_precision_it_is_merged(family: Path, adapter: Path) -> None:
    base = plain(family)
    ours = adapted(base, pairs_of(adapter), 2.5)
    values = merged(base, pairs_of(adapter), 2.5)
    assert all(torch.equal(ours.get_parameter(name), value) for name, value in values.items())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_half_precision_it_is_bit_for_bit_what_peft_computes_and_no_weight_is_copied(
    dtype: torch.dtype, family: Path, tmp_path: Path
) -> None:
    folder = noise(tmp_path, family, seed=2, rank=4, alpha=8.0)
    base, theirs = plain(family, dtype), by_peft(family, folder, dtype)
    before = base(IDS).logits
    ours = adapted(base, pairs_of(folder), 2.0)
    assert torch.equal(ours(IDS).logits, theirs(IDS).logits)
    assert not torch.equal(ours(IDS).logits, before)
    assert torch.equal(base(IDS).logits, before)
    pairs = zip(ours.named_parameters(), base.named_parameters(), strict=True)
    assert all(name == same and own is its for (name, own), (same, its) in pairs)


def test_a_folder_says_which_adapter_it_holds(family: Path, adapter: Path) -> None:
    assert lora_of(adapter) == Lora(rank=3, alpha=7.5)
    assert Lora(rank=3, alpha=7.5).scale == 2.5
    assert lora_of(family) is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"r": "many", "lora_alpha": 1}', '{"r": 4}', '{"r": 0, "lora_alpha": 1}']
)
def test_a_damaged_configuration_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_text(text)
    with pytest.raises(ValueError, match=f"{CONFIG} is not an adapter's configuration"):
        lora_of(tmp_path)


def test_factors_that_do_not_pair_or_fit_are_named(family: Path, adapter: Path) -> None:
    tensors, base = load_file(adapter / TENSORS), plain(family)
    lonely = next(name for name in tensors if ".lora_B." in name)
    save_file({name: tensor for name, tensor in tensors.items() if name != lonely}, adapter / TENSORS)
    with pytest.raises(ValueError, match=r"lora_B\.weight"):
        pairs_of(adapter)
    save_file(tensors | {"base_model.model.norm.bias": torch.ones(2)}, adapter / TENSORS)
    with pytest.raises(ValueError, match=r"lora_A\.weight"):
        pairs_of(adapter)
    save_file(
        {name.replace("base_model.model.", "base_model.model.other."): t for name, t in tensors.items()},
        adapter / TENSORS,
    )
    with pytest.raises(ValueError, match=r"no linear layer other\."):
        merged(base, pairs_of(adapter), 1.0)
    save_file(
        {name: tensor[:1] if ".lora_B." in name else tensor for name, tensor in tensors.items()},
        adapter / TENSORS,
    )
    with pytest.raises(ValueError, match="but its adapter"):
        merged(base, pairs_of(adapter), 1.0)


def test_a_config_of_another_program_is_read_all_the_same(tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_text(json.dumps({"r": 8, "lora_alpha": 16, "peft_type": "LORA"}))
    assert lora_of(tmp_path) == Lora(rank=8, alpha=16.0)

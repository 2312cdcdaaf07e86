"""The table of cards on the page is the one that is computed."""

from __future__ import annotations

import pytest
from transformers import Qwen3Config, Qwen3ForCausalLM

from afterwit.planning.memory import ModelShape
from docs import cards


def test_the_page_has_the_table_that_the_command_writes() -> None:
    text = cards.PAGE.read_text(encoding="utf-8")
    assert cards.page(text) == text


@pytest.mark.parametrize("name", ["Qwen3-0.6B", pytest.param("Qwen3-8B", marks=pytest.mark.slow)])
def test_weights_and_adapter_are_those_of_the_model_itself(name: str) -> None:
    import torch
    from peft import LoraConfig, get_peft_model

    shape, rank = ModelShape.of(cards.CONFIGS[name]), cards.LEARNER.lora_rank
    with torch.device("meta"):
        model = Qwen3ForCausalLM(Qwen3Config(**cards.CONFIGS[name]))
        weights = sum(parameter.numel() for parameter in model.parameters())
        adapted = get_peft_model(model, LoraConfig(r=rank, target_modules="all-linear"))
    assert weights == pytest.approx(shape.weights, rel=1e-3)
    assert sum(p.numel() for p in adapted.parameters() if p.requires_grad) == shape.adapter(rank)


def test_a_model_too_large_for_any_card_needs_two() -> None:
    assert (cards.card(6), cards.card(100), cards.card(120)) == ("8 GB", "141 GB", "two cards")

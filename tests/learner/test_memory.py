from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from afterwit.core.judging.hints import Placement, splice
from afterwit.learner.memory import Ask, answers, asks
from afterwit.learner.parameters.load import load_model
from afterwit.learner.settings import MemoryHints
from afterwit.wire.model_text.render import Renderer
from tests.fakes.lessons import lesson

PROMPTS = [(5, 6, 7, 8, 9, 10, 11), (3,), (40, 41, 42)]


@pytest.fixture(scope="module")
def model(base: Path) -> PreTrainedModel:
    return load_model(base, dtype=torch.float64, device=torch.device("cpu"))


def continued(model: PreTrainedModel, prompt: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The likeliest continuation, one whole forward pass per token."""
    ids = list(prompt)
    for _ in range(count):
        with torch.no_grad():
            ids.append(int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    return tuple(ids[len(prompt) :])


def test_near_temperature_zero_the_base_answers_what_is_likeliest(model: PreTrainedModel) -> None:
    found = answers(
        model, [Ask(prompt=prompt, tau=1e-4) for prompt in PROMPTS], most=8, end_ids=frozenset(), seed=1
    )
    for memory, prompt in zip(found, PROMPTS, strict=True):
        assert memory.row.prompt == prompt
        assert memory.row.response == continued(model, prompt, 8)


def test_an_answer_ends_with_its_end_token(model: PreTrainedModel) -> None:
    whole = continued(model, PROMPTS[0], 8)
    end = whole[3]
    (found,) = answers(model, [Ask(prompt=PROMPTS[0], tau=1e-4)], most=8, end_ids=frozenset({end}), seed=1)
    assert found.row.response == whole[: whole.index(end) + 1]


def test_the_seed_decides_the_answers(model: PreTrainedModel) -> None:
    asked = [Ask(prompt=prompt, tau=1.0) for prompt in PROMPTS]
    first, same, other = (
        answers(model, asked, most=12, end_ids=frozenset(), seed=seed) for seed in (1, 1, 2)
    )
    assert first == same != other


def test_answers_follow_the_bases_distribution_at_their_temperature(model: PreTrainedModel) -> None:
    asked = [Ask(prompt=PROMPTS[2], tau=0.5)] * 4000
    drawn = [found.row.response[0] for found in answers(model, asked, most=1, end_ids=frozenset(), seed=3)]
    with torch.no_grad():
        expected = (model(input_ids=torch.tensor([PROMPTS[2]])).logits[0, -1] / 0.5).softmax(dim=-1)
    frequency = torch.bincount(torch.tensor(drawn), minlength=len(expected)) / len(drawn)
    assert (frequency - expected).abs().max() < 0.04


@pytest.mark.parametrize(("which", "hinted"), [("with", 4), ("without", 0), ("both", 2)])
def test_prompts_carry_hints_as_the_setting_says(renderer: Renderer, which: MemoryHints, hinted: int) -> None:
    samples = [lesson(renderer, number) for number in range(9)]
    asked = [
        ask.prompt
        for ask in asks(samples, renderer, Placement.LAST_USER, count=4, hinted=which, room=512, seed=1)
    ]
    plain = {sample.turn.prompt_ids for sample in samples}
    shortest = {
        renderer.prompt_ids(splice(sample.turn.conversation, sample.verdict.hints[0])) for sample in samples
    }
    assert len(set(asked)) == 4
    assert sum(prompt in shortest for prompt in asked) == hinted
    assert sum(prompt in plain for prompt in asked) == 4 - hinted


@pytest.mark.parametrize(("which", "asked"), [("with", 0), ("without", 3), ("both", 3)])
def test_turns_without_a_hint_are_asked_as_they_were(
    renderer: Renderer, which: MemoryHints, asked: int
) -> None:
    samples = [lesson(renderer, number, reward=1, hints=()) for number in range(3)]
    found = asks(samples, renderer, Placement.LAST_USER, count=4, hinted=which, room=512, seed=1)
    assert len(found) == asked
    assert {ask.prompt for ask in found} <= {sample.turn.prompt_ids for sample in samples}


def test_a_prompt_over_the_room_is_not_asked(renderer: Renderer) -> None:
    ways: tuple[MemoryHints, ...] = ("with", "without")
    for hinted in ways:
        for room, count in ((10, 0), (512, 1)):
            found = asks(
                [lesson(renderer)], renderer, Placement.LAST_USER, count=4, hinted=hinted, room=room, seed=1
            )
            assert len(found) == count

"""Noise of a number format is distinguished from other weights, whatever the noise."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.weights.agreement import LEAST, MOST_EXACT, MOST_ROUNDED, allowed, gap, most, share

TOKENS = 256


def answers(seed: int, *, moved: float, noise: float) -> tuple[list[float], list[float], list[float]]:
    """Log-probs of the right weights and of others, and noise of an engine, token by token."""
    random = Random(seed)
    other = [-random.expovariate(0.2) for _ in range(TOKENS)]
    right = [value + random.gauss(0, moved) for value in other]
    return right, other, [random.gauss(0, noise) for _ in range(TOKENS)]


def noisy(logprobs: list[float], noise: list[float]) -> list[float]:
    return [value + off for value, off in zip(logprobs, noise, strict=True)]


@given(st.integers(0, 10_000), st.floats(0.05, 1.0))
def test_right_and_other_weights_are_told_apart_where_both_are_as_far_from_the_learner(
    seed: int, moved: float
) -> None:
    """With noise as large as the move, the gaps alone say nothing."""
    right, other, noise = answers(seed, moved=moved, noise=moved)
    found, wrong = share(noisy(right, noise), right, other), share(noisy(other, noise), right, other)
    assert found.distinguishes
    assert found.is_right
    assert not wrong.is_right


@given(st.integers(0, 10_000))
def test_what_noise_hides_is_told_to_be_hidden_and_no_right_version_is_refused_for_it(seed: int) -> None:
    right, other, noise = answers(seed, moved=0.002, noise=0.07)
    found = share(noisy(right, noise), right, other)
    assert not found.distinguishes
    assert found.is_right


def test_the_error_is_that_of_many_draws() -> None:
    """The spread of s over many draws of noise that grows with the move, against the estimate of one draw."""
    right, other, _ = answers(7, moved=0.1, noise=0.0)
    random, found = Random(3), []
    for _ in range(400):
        noise = [random.gauss(0, 0.05 + 0.5 * abs(r - o)) for r, o in zip(right, other, strict=True)]
        found.append(share(noisy(right, noise), right, other))
    mean = sum(each.value for each in found) / len(found)
    spread = math.sqrt(sum((each.value - mean) ** 2 for each in found) / (len(found) - 1))
    said = sum(each.error for each in found) / len(found)
    assert mean == pytest.approx(1.0, abs=4 * spread / 20)
    assert said == pytest.approx(spread, rel=0.2)


@pytest.mark.parametrize("times", [0.0, 0.3, 2.0, -1.0])
def test_an_adapter_of_another_strength_is_not_the_right_one(times: float) -> None:
    right, other, noise = answers(1, moved=0.2, noise=0.05)
    said = [o + times * (r - o) + off for r, o, off in zip(right, other, noise, strict=True)]
    found = share(said, right, other)
    assert found.value == pytest.approx(times, abs=0.1)
    assert not found.is_right


def test_of_weights_that_say_the_same_nothing_is_told() -> None:
    found = share([-1.0, -2.0], [-1.1, -2.1], [-1.1, -2.1])
    assert (found.is_right, found.distinguishes) == (True, False)


def test_of_weights_that_differ_at_one_token_alone_nothing_is_told() -> None:
    found = share([-1.0, -2.0], [-1.0, -3.0], [-1.0, -2.0])
    assert (found.is_right, found.distinguishes) == (True, False)


@pytest.mark.parametrize("said", [[], [-1.0], [-1.0] * 64])
def test_an_answer_of_another_length_is_no_answer(said: list[float]) -> None:
    with pytest.raises(ValueError, match=f"{len(said)} log-probs were given for 63 tokens"):
        gap([-1.0] * 63, said)


def test_what_is_right_follows_what_was_measured_within_what_a_format_can_do() -> None:
    assert most("float32", "float64") == MOST_EXACT < most("float32", "bfloat16") == MOST_ROUNDED
    assert allowed(0.0, "float32") == allowed(0.0, "bfloat16") == LEAST
    assert allowed(0.03, "bfloat16") == pytest.approx(0.09)
    assert (allowed(1.0, "bfloat16"), allowed(1.0, "float32")) == (MOST_ROUNDED, MOST_EXACT)
    assert math.isnan(gap([math.nan], [1.0]))

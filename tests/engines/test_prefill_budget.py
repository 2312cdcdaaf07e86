"""A long prompt is read in pieces, and decode steps lie between them. Steps are counted, not seconds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.engines.embedded.runner import LEAST, ModelRunner, PrefillBudget
from afterwit.engines.port import Step
from tests.engines.parrot import Parrot, runner_of, sequence_of

LONG = 20_000
SPAN = 1000


def ticks(runner: ModelRunner, count: int, *, first: int = 1) -> None:
    for number in range(first, first + count):
        runner.tick(number)


def pieces(module: Parrot) -> list[int]:
    """Prompt tokens of each forward that read more than one."""
    return [positions for _, positions in module.forwards if positions > 1]


@given(
    tokens=st.integers(1, 2000),
    context=st.integers(0, 40_000),
    span=st.sampled_from((500.0, 4000.0, math.inf)),
)
def test_as_many_tokens_are_read_as_the_work_allows(tokens: int, context: int, span: float) -> None:
    budget = PrefillBudget(chunk=256, per_step=32, attention_span=span)
    work = budget.work(tokens, context)
    assert budget.tokens(work + 1e-6, context) == tokens
    assert budget.tokens(work - 1e-3, context) == tokens - 1


def test_a_token_at_a_long_context_is_more_work() -> None:
    budget = PrefillBudget(chunk=256, per_step=32, attention_span=SPAN)
    assert budget.work(100, 0) == 100
    assert budget.work(100, 10 * SPAN) > 11 * budget.work(100, 0)


def test_beside_a_response_a_long_prompt_waits_for_decode_steps_between_its_pieces() -> None:
    module = Parrot(0)
    runner = runner_of(module, budget=PrefillBudget(chunk=256, per_step=32))
    runner.add(sequence_of([1], max_tokens=500))
    ticks(runner, 2)
    runner.add(sequence_of([2] * LONG))
    ticks(runner, 80, first=3)
    assert pieces(module) == [256] * 10, "one piece per 256 / 32 = 8 decode steps"


def test_alone_a_long_prompt_is_read_without_a_pause() -> None:
    module = Parrot(0)
    runner = runner_of(module, budget=PrefillBudget(chunk=256, per_step=32))
    runner.add(sequence_of([2] * 2560))
    ticks(runner, 10)
    assert pieces(module) == [256] * 10


def test_responses_of_another_runner_count_too() -> None:
    module = Parrot(0)
    runner = runner_of(module, budget=PrefillBudget(chunk=256, per_step=32))
    runner.add(sequence_of([2] * LONG))
    for number in range(16):
        runner.tick(number, others_decode=True)
    assert pieces(module) == [256] * 2


@pytest.mark.parametrize("beside", [False, True])
def test_no_piece_is_more_work_than_the_limit_except_the_smallest(beside: bool) -> None:
    module, budget = Parrot(0), PrefillBudget(chunk=256, per_step=256, attention_span=SPAN)
    runner = runner_of(module, budget=budget)
    if beside:
        runner.add(sequence_of([1], max_tokens=10_000))
    runner.add(sequence_of([2] * LONG))
    ticks(runner, 500)
    read = 0
    for size in pieces(module):
        assert size == LEAST or budget.work(size, read) <= budget.chunk
        read += size
    assert read > 5 * SPAN


def test_a_short_request_beside_a_long_prompt_starts_at_once_and_waits_for_few_pieces() -> None:
    """The defect: the short prompt waited until all of the long one was read."""
    module, taken = Parrot(0), list[Step]()
    runner = runner_of(module, budget=PrefillBudget(chunk=256, per_step=32))
    runner.add(sequence_of([2] * LONG))
    ticks(runner, 5)
    before = len(pieces(module))
    runner.add(sequence_of([1] * 30, taken.append, max_tokens=20))
    ticks(runner, 20, first=6)
    assert len(taken) == 20
    assert taken[-1].ended == "length"
    assert pieces(module)[before] == 30, "the short prompt is read first"
    of_the_long_one = len(pieces(module)) - before - 1
    assert of_the_long_one <= 1 + math.ceil(20 * 32 / 256) + 1, "first tick, decode steps, last tick"


def test_two_long_prompts_are_read_in_turn() -> None:
    module, started = Parrot(0), list[Step]()
    runner = runner_of(module, budget=PrefillBudget(chunk=256, per_step=32))
    runner.add(sequence_of([1] * 2560, started.append))
    runner.add(sequence_of([2] * 2560, started.append))
    ticks(runner, 18)
    assert not started
    ticks(runner, 2, first=19)
    assert len(started) >= 2


def test_many_long_prompts_together_cost_a_response_no_more_than_one() -> None:
    """The defect: each read a piece as often as one alone."""
    module = Parrot(0)
    runner = runner_of(module, budget=PrefillBudget(chunk=256, per_step=32))
    runner.add(sequence_of([1], max_tokens=500))
    ticks(runner, 2)
    for word in range(2, 6):
        runner.add(sequence_of([word] * LONG))
    ticks(runner, 8, first=3)
    first_pieces = len(pieces(module))
    assert first_pieces == 4, "each begins at once"
    ticks(runner, 320, first=11)
    assert len(pieces(module)) - first_pieces == 40, "one piece of any of them per 8 decode steps"

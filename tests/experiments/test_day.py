"""The model of a day: its limits, what grows with what, and small cases that are run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode
from transformers import Qwen3Config, Qwen3ForCausalLM

from afterwit.judging.settings import JudgeSettings
from afterwit.learning import metrics as work
from afterwit.learning.passes import Row, token_ratio
from afterwit.learning.schedule import largest_batch
from afterwit.learning.settings import LearnerSettings
from afterwit.planning.memory import ModelShape
from docs.cards import CONFIGS, qwen3
from experiments.day.learning import TRAINED, Learning, Pace, Tokens, sessions_in, tokens_of
from experiments.day.limits import (
    Speed,
    learner_cards,
    pace_of,
    seconds_of,
    token_operations,
    version_bytes,
)
from experiments.day.traffic import DAY_S, HOUR_S, Day, days_kept, question_tokens, stored_bytes

QWEN = ModelShape.of(CONFIGS["Qwen3-4B"])
DAY = Day(turns=10_000)
AT_EASE = Learning(pace=Pace(fixed_s=1e-6, token_s=0.0))
turns = st.integers(min_value=1, max_value=10_000_000)


@given(turns)
def test_the_hours_hold_the_whole_day(count: int) -> None:
    day = Day(turns=count)
    assert sum(day.rates) * HOUR_S == pytest.approx(count)
    assert day.peak >= count / DAY_S


def test_sessions_of_one_turn_repeat_nothing_and_teach_nothing() -> None:
    day = Day(turns=100, session=1, spread=0)
    assert day.prompt == day.new == day.system + day.asked
    assert day.learned == 0


def test_the_mean_prompt_is_that_of_the_sessions_counted_one_by_one() -> None:
    day = Day(turns=60, session=20, spread=0)
    prompts = [day.system + (place + 1) * day.asked + place * day.said for place in range(20)]
    assert day.prompt == pytest.approx(sum(prompts) / 20)
    longer = Day(turns=40, session=20, spread=0.5)  # sessions of 10 and 30 turns
    lengths = [place for length in (10, 30) for place in range(length)]
    uneven = [day.system + (place + 1) * day.asked + place * day.said for place in lengths]
    assert longer.prompt == pytest.approx(sum(uneven) / 40)


@pytest.mark.parametrize("wrong", [{"turns": 0}, {"session": 0.5}, {"pause_s": 0.0}])
def test_a_day_without_turns_or_time_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="at least one turn"):
        replace(DAY, **wrong)


@given(turns, turns)
def test_more_turns_ask_for_no_less(one: int, other: int) -> None:
    less, more = (Day(turns=count) for count in sorted((one, other)))
    learning = Learning(pace=pace_of(DAY, QWEN, Speed()))
    assert less.at_once(less.peak) <= more.at_once(more.peak)
    assert learning.keeps_up(less) or not learning.keeps_up(more)
    assert days_kept(less, 20, 90) >= days_kept(more, 20, 90)


@given(st.integers(min_value=1, max_value=3_000))
def test_a_learner_at_ease_takes_what_its_settings_say_and_leaves_one_at_most(count: int) -> None:
    updates, settings = AT_EASE.run(Day(turns=count)), AT_EASE.settings
    assert all(settings.min_batch <= update.turns <= settings.batch for update in updates)
    left = Day(turns=count).learned - sum(update.turns for update in updates)
    assert -1e-6 <= left < settings.min_batch + 1e-6


def test_a_learner_that_is_hardly_fast_enough_takes_larger_updates_as_its_queue_grows() -> None:
    coming = DAY.peak * DAY.learned / DAY.turns
    four = LearnerSettings().batch / coming
    slow = Learning(pace=Pace(fixed_s=1.5 * four, token_s=0.0))
    assert slow.keeps_up(DAY)
    updates = slow.run(DAY)
    assert max(update.turns for update in updates) == 2 * LearnerSettings().batch
    assert sum(update.turns for update in updates) > 0.99 * DAY.learned


def test_a_learner_far_too_slow_takes_the_largest_updates_and_leaves_the_rest() -> None:
    slow = Learning(pace=Pace(fixed_s=HOUR_S, token_s=0.0))
    assert not slow.keeps_up(DAY)
    updates, largest = slow.run(DAY), largest_batch(LearnerSettings())
    assert {update.turns for update in updates[3:20]} == {largest}
    assert sum(update.turns for update in updates) < 40 * largest


def test_work_is_counted_as_the_learner_counts_it() -> None:
    assert TRAINED == work.FORWARD_AND_BACKWARD
    assert Tokens(10, 5).work == 35


@given(st.integers(1, 64), st.floats(0, 100))
def test_an_update_is_of_one_session_at_least_and_of_no_more_than_its_turns(batch: int, rate: float) -> None:
    day = Day(turns=100_000)
    assert 1 <= sessions_in(day, rate, batch, LearnerSettings()) <= batch


SMALL = Day(
    turns=100, session=5, spread=0, system=500, asked=70, said=50, hint=30, trains=1.0, steps=3
)  # the mean turn is the third


def drawn(random: Random, count: int) -> tuple[int, ...]:
    return tuple(random.randrange(10_000) for _ in range(count))


def session_rows(number: int, places: Collection[int], *, behind: int) -> tuple[list[Row], list[Row]]:
    """Turns of a session; and after a hint, with `behind` tokens after the hint, and without."""
    random, students, read = Random(number), list[Row](), list[Row]()
    ids = drawn(random, SMALL.system)
    for place in range(5):
        ids += drawn(random, SMALL.asked)
        said = drawn(random, SMALL.said)
        if place in places:
            at = len(ids) - behind
            hinted = ids[:at] + drawn(random, SMALL.hint) + ids[at:]
            students.append(Row(prompt=ids, response=said))
            read += [Row(prompt=hinted, response=said), students[-1]]
        ids += said
    return students, read


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("places", [(2,), (2, 3)])
@pytest.mark.parametrize("sessions", [1, 3])
def test_tokens_are_those_of_rows_that_share_their_beginnings(
    sessions: int, places: tuple[int, ...], at_end: bool
) -> None:
    behind = 0 if at_end else round(SMALL.behind)
    found = [session_rows(number, places, behind=behind) for number in range(sessions)]
    tokens = tokens_of(SMALL, sessions * len(places), sessions, at_end=at_end, reads_own=True)
    assert tokens.trained == pytest.approx(_run([row for each, _ in found for row in each]), rel=0.01)
    assert tokens.read == pytest.approx(_run([row for _, each in found for row in each]), rel=0.01)


def _run(rows: list[Row]) -> float:
    return sum(len(row) for row in rows) / token_ratio(rows)


def test_operations_are_those_that_torch_counts() -> None:
    config = qwen3(64, 2, 4, 160, tied=True) | {"vocab_size": 32, "num_key_value_heads": 2}
    shape, tokens = ModelShape.of(config), 96
    model = Qwen3ForCausalLM(Qwen3Config(**config, attn_implementation="eager")).eval()
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        model(input_ids=torch.zeros((1, tokens), dtype=torch.int64), use_cache=False, logits_to_keep=1)
    counted = counter.get_total_flops() - 2 * shape.vocabulary * shape.hidden
    assert tokens * token_operations(shape, tokens) == pytest.approx(counted, rel=1e-2)  # of all pairs


def test_hints_at_the_end_run_less_again_and_one_prompt_is_read_by_policy_and_teacher() -> None:
    last, end = (tokens_of(DAY, 4, 4, at_end=at_end, reads_own=False) for at_end in (False, True))
    assert last.trained == end.trained == 4 * (DAY.prompt + DAY.said)
    assert last.read - end.read == pytest.approx(4 * DAY.hints * DAY.behind)
    unhinted = replace(DAY, hints=0.0)
    assert tokens_of(unhinted, 4, 4, at_end=True, reads_own=False).read == 0


def test_more_cards_learn_more_and_no_more_than_a_batch_has_turns_are_of_use() -> None:
    learning = Learning(pace=pace_of(DAY, QWEN, Speed()))
    needed = [learner_cards(Day(turns=count), QWEN, Speed(), learning) for count in (1_000, 100_000)]
    assert needed[0] == 1
    assert needed[1] is not None
    assert 1 < needed[1] <= LearnerSettings().batch
    assert learner_cards(Day(turns=10_000_000), QWEN, Speed(), learning) is None


def test_a_card_twice_as_fast_takes_half_the_time() -> None:
    slow, judge = Speed(), JudgeSettings()
    fast = replace(slow, operations=2 * slow.operations, bandwidth=2 * slow.bandwidth)
    for one, half in zip(
        seconds_of(DAY, QWEN, QWEN, judge, slow), seconds_of(DAY, QWEN, QWEN, judge, fast), strict=True
    ):
        assert half == pytest.approx(one / 2)


def test_what_the_judge_is_shown_of_a_long_turn_has_an_end() -> None:
    longest = [question_tokens(replace(DAY, system=tokens)) for tokens in (20_000, 200_000)]
    assert longest[0] == longest[1]
    assert question_tokens(replace(DAY, system=10, session=1)) < longest[0]


def test_a_turn_keeps_what_is_new_in_it_and_not_its_session() -> None:
    long = replace(DAY, session=200.0)
    assert long.prompt > 4 * DAY.prompt
    assert stored_bytes(long) < stored_bytes(DAY)


def test_an_adapters_version_is_small_beside_a_whole_one() -> None:
    assert version_bytes(QWEN, 16) == 12 * QWEN.adapter(16)
    assert version_bytes(QWEN, 0) == 14 * QWEN.weights
    assert version_bytes(QWEN, 0, "float32") == 12 * QWEN.weights

"""The turns of an update, and when it starts."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from random import Random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.learning.schedule import LONGEST_RETRY_S, grouped, is_stale, largest_batch, next_batch, retry_in
from afterwit.learning.settings import LearnerSettings, rate_for
from afterwit.verdict import Flag, Waiting

SETTINGS = LearnerSettings(batch=16, min_batch=4, max_wait_s=1800)
NOW = 10_000.0


def turn(
    seq: int, session: str = "a", *, waited_s: float = 0, version: int = 0, ended: bool = False
) -> Waiting:
    return Waiting(
        seq=seq,
        turn=f"turn {seq}",
        session=session,
        since=NOW - waited_s,
        oldest_version=version,
        ended=ended,
    )


def sessions(names: str, **more: float) -> list[Waiting]:
    """A turn a letter, each letter a session."""
    return [turn(seq, name, **more) for seq, name in enumerate(names)]  # type: ignore[arg-type]


def chosen(settings: LearnerSettings, waiting: list[Waiting], *, version: int = 0) -> tuple[int, ...]:
    return next_batch(settings, waiting, now=NOW, version=version).turns


def holding(count: int, **more: int) -> LearnerSettings:
    return LearnerSettings(
        **{"turns_per_session_per_update": count, "batch": 8, "min_batch": 1, "max_wait_s": 100} | more
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ready", "waited_s", "starts"),
    [(16, 0, True), (40, 0, True), (15, 0, False), (4, 1800, True), (4, 1799, False), (3, 1e9, False)],
)
def test_an_update_starts_with_a_full_batch_or_after_half_an_hour_with_four(
    ready: int, waited_s: float, starts: bool
) -> None:
    taken = chosen(SETTINGS, sessions("a" * ready, waited_s=waited_s))
    assert taken == (tuple(range(min(ready, 16))) if starts else ())


@given(st.text("abc", max_size=60), st.integers(1, 9), st.integers(0, 1))
def test_if_nothing_is_held_back_the_oldest_turns_go_first(names: str, batch: int, late: int) -> None:
    settings = LearnerSettings(
        batch=batch, min_batch=1, max_wait_s=100, batches_per_update=1, max_staleness=60
    )
    waiting = sessions(names, waited_s=100.0 * late)
    due = len(waiting) >= batch or (late and waiting)
    assert chosen(settings, waiting) == (tuple(range(len(waiting)))[:batch] if due else ())


def of(source: str, *seqs: int, waited_s: float = 0.0) -> list[Waiting]:
    return [turn(seq, source, waited_s=waited_s)._replace(source=source) for seq in seqs]


def test_a_source_gives_at_most_a_quarter_of_an_update_if_several_have_turns() -> None:
    others = [each for at in range(4) for each in of(f"s{at}", *range(100 + 4 * at, 104 + 4 * at))]
    taken = chosen(SETTINGS, [*of("eve", *range(60)), *others])
    assert [seq for seq in taken if seq < 60] == [0, 1, 2, 3]
    assert len(taken) == 16


def test_two_sources_share_an_update_and_one_alone_fills_it() -> None:
    assert chosen(SETTINGS, [*of("eve", *range(20)), *of("ann", *range(20, 40))]) == (
        *range(8),
        *range(20, 28),
    )
    assert chosen(SETTINGS, of("eve", *range(20))) == tuple(range(16))


def test_what_a_source_has_beyond_its_share_makes_no_update_due() -> None:
    mixed = [*of("eve", *range(20)), *of("ann", 20)]
    assert chosen(SETTINGS, mixed) == ()
    late = [each._replace(since=NOW - 1800) for each in mixed]
    assert chosen(SETTINGS, late) == (*range(8), 20)
    assert chosen(replace(SETTINGS, source_share=1.0), mixed) == tuple(range(16))


def test_once_practice_has_filled_its_sources_share_an_update_waits_for_nothing() -> None:
    practised = [each._replace(practised=True) for each in of("eve", 1, 2, 3)]
    mixed = [*of("ann", 9), *of("eve", 0), *practised[:1]]
    settings = replace(SETTINGS, batch=4, min_batch=2, batches_per_update=1)
    assert chosen(settings, mixed) == (0, 1, 9)  # eve's two of four, and no more to come
    assert chosen(settings, [*of("ann", 9), *of("eve", 0)]) == ()
    assert chosen(replace(settings, batch=8), mixed) == ()  # eve has room for two more


def test_turns_that_wait_for_a_person_are_counted_apart() -> None:
    flagged = [each._replace(flags=(Flag.LINK,)) for each in of("ann", *range(16))]
    found = next_batch(SETTINGS, [*flagged, *of("ann", *range(16, 31))], now=NOW, version=0)
    assert (found.turns, found.ready, found.review) == ((), 15, 16)
    accepted = [each._replace(accepted=True) for each in flagged]
    assert chosen(SETTINGS, accepted) == tuple(range(16))


def test_turns_of_a_session_wait_for_each_other() -> None:
    settings = holding(3, batch=3)
    assert chosen(settings, sessions("aabbcc")) == ()
    assert chosen(settings, sessions("aabbcca")) == (0, 1, 6)


@pytest.mark.parametrize(
    ("more", "version"), [({"waited_s": 100.0}, 0), ({"ended": True, "waited_s": 1.0}, 0), ({}, 14)]
)
def test_they_wait_no_longer_than_its_end_its_patience_and_its_staleness(
    more: dict[str, float], version: int
) -> None:
    """Four turns are at most two updates: a group of three leaves too little room for one of two."""
    settings = holding(3, batch=4, max_staleness=16)
    waiting = sessions("aabb")
    assert chosen(settings, waiting) == ()
    assert chosen(settings, sessions("aabb", **more), version=version) == (0, 1, 2, 3)
    assert chosen(settings, waiting, version=13) == ()


def test_a_session_that_has_waited_long_enough_takes_no_other_with_it() -> None:
    waiting = [turn(0, "a", waited_s=100), turn(1, "b", waited_s=99), turn(2, "a")]
    assert chosen(holding(4), waiting) == (0, 2)


def test_a_group_that_does_not_fit_leads_the_next_batch() -> None:
    settings = holding(3, batch=4)
    waiting = [*sessions("aaabbb"), turn(6, "c", ended=True)]
    assert chosen(settings, waiting) == (0, 1, 2, 6)
    assert chosen(settings, [*waiting[3:6], *sessions("ddd")]) == (3, 4, 5)


def test_a_group_is_cut_only_if_a_batch_would_have_too_few() -> None:
    waiting = [turn(0, "a", ended=True), *sessions("xbbbb")[1:]]
    assert chosen(holding(4, batch=4), waiting) == (0,)
    assert chosen(holding(4, batch=4, min_batch=2), waiting) == (0, 1, 2, 3)


@given(st.text("abcd", max_size=60), st.integers(1, 6))
def test_groups_hold_every_turn_once_in_order_each_of_one_session(names: str, size: int) -> None:
    groups = grouped(sessions(names), size)
    assert sorted(chain(*groups)) == sessions(names)
    assert all(len({turn.session for turn in group}) == 1 <= len(group) <= size for group in groups)
    assert [group[0].seq for group in groups] == sorted(group[0].seq for group in groups)
    for name in set(names):
        lengths = [len(group) for group in groups if group[0].session == name]
        assert lengths[:-1] == [size] * (len(lengths) - 1)


@given(
    count=st.integers(1, 8),
    least=st.integers(1, 8),
    people=st.integers(1, 60),
    max_staleness=st.sampled_from([3, 8, 16]),
    seed=st.integers(0, 2**32),
)
def test_every_turn_trains_once_in_time_and_within_its_staleness(
    count: int, least: int, people: int, max_staleness: int, seed: int
) -> None:
    """Sessions of any rhythm, few or many, against a clock: nothing starves and nothing is lost."""
    settings = holding(count, min_batch=least, max_staleness=max_staleness)
    random, waiting, taken, version = Random(seed), list[Waiting](), list[int](), 0
    for now in range(300):
        for _ in range(random.choice((0, 0, 1, 1, 3)) if now < 150 else 0):
            name, ended = f"session {random.randrange(people)}", random.random() < 0.1
            seq = len(taken) + len(waiting)
            waiting.append(Waiting(seq, f"turn {seq}", name, float(now), version, ended))
        batch = next_batch(settings, waiting, now=float(now), version=version).turns
        assert not batch or settings.min_batch <= len(batch) <= largest_batch(settings)
        behind = [version - turn.oldest_version for turn in waiting if turn.seq in batch]
        assert all(versions <= max_staleness for versions in behind)
        taken += batch
        waiting = [turn for turn in waiting if turn.seq not in batch]
        version += bool(batch)
    assert len(set(taken)) == len(taken)
    assert len(waiting) < settings.min_batch


@pytest.mark.parametrize(
    ("ready", "taken"), [(16, 16), (127, 16), (128, 32), (191, 32), (192, 48), (256, 64), (999, 64)]
)
def test_an_update_takes_a_quarter_of_a_long_queue_in_whole_batches_up_to_the_limit(
    ready: int, taken: int
) -> None:
    assert len(chosen(SETTINGS, sessions("a" * ready))) == taken
    assert len(chosen(replace(SETTINGS, batches_per_update=1), sessions("a" * ready))) == 16


def test_the_oldest_go_first_while_all_can_train_in_time_else_the_newest() -> None:
    settings = LearnerSettings(batch=4, min_batch=1, batches_per_update=1, max_staleness=2)
    for count, first, lags in ((12, 0, False), (13, 9, True)):
        choice = next_batch(settings, sessions("a" * count), now=NOW, version=0)
        assert choice.turns == tuple(range(first, first + 4))
        assert choice.lags == lags


def test_the_newest_sessions_go_first_whole() -> None:
    settings = LearnerSettings(
        batch=4, min_batch=1, batches_per_update=1, max_staleness=1, turns_per_session_per_update=2
    )
    waiting = sessions("aabbccddeef", ended=True)
    assert chosen(settings, waiting) == (8, 9, 10)  # the d's do not fit


def test_to_drain_is_to_learn_from_a_single_turn() -> None:
    assert chosen(SETTINGS, sessions("a")) == ()
    assert next_batch(SETTINGS, sessions("a"), now=NOW, version=0, drain=True).turns == (0,)


@pytest.mark.parametrize(("load", "age"), [(1, 3.0), (2, 6.0), (5, 1.5), (10, 1.5)])
def test_under_load_the_learner_is_never_idle_and_learns_what_is_fresh(load: int, age: float) -> None:
    """Turns come at `load` times its pace: an update of 16 takes 1, a quarter of that whatever its size."""
    settings = replace(SETTINGS, max_wait_s=1e9)
    waiting, ages, made, version, now = list[Waiting](), list[int](), 0, 0, 0.0
    while now < 75:
        while made < now * 16 * load:
            waiting.append(turn(made, str(made), version=version))
            made += 1
        waiting = [each for each in waiting if not is_stale(each, settings, version)]
        batch = set(next_batch(settings, waiting, now=now, version=version).turns)
        if now > 25:
            ages += [version - each.oldest_version for each in waiting if each.seq in batch]
        waiting = [each for each in waiting if each.seq not in batch]
        version += bool(batch)
        now += 0.25 + 0.75 * len(batch) / 16 if batch else 0.05
    assert len(ages) >= 0.95 * 16 * 50 * (1 if load == 1 else 1.2)
    assert fmean(ages) <= age


def test_retries_double_up_to_an_hour() -> None:
    waits = [retry_in(LearnerSettings(retry_s=30), attempts) for attempts in (0, 1, 2, 10, 10_000)]
    assert waits == [30, 60, 120, LONGEST_RETRY_S, LONGEST_RETRY_S]


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch": 0},
        {"min_batch": 17},
        {"turns_per_session_per_update": 0},
        {"turns_per_session_per_update": 17},
        {"lr": 0.0},
        {"beta2": 1.0},
        {"ema_decay": 1.5},
        {"lora_rank": -1},
        {"lora_alpha": 0.0},
        {"dtype": "float16"},
        {"max_staleness": -1},
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LearnerSettings(**wrong)  # type: ignore[arg-type]


@given(width=st.integers(1, 65_536), wider=st.integers(1, 65_536))
def test_the_rate_falls_with_the_width_and_is_ten_times_as_large_for_an_adapter(
    width: int, wider: int
) -> None:
    of_adapter, of_whole = (rate_for(width, adapter=adapter) for adapter in (True, False))
    assert of_adapter == pytest.approx(10 * of_whole)
    assert (rate_for(wider, adapter=True) < of_adapter) == (wider > width)


@pytest.mark.parametrize(("width", "rate"), [(96, 2.1e-3), (576, 5e-4), (2560, 1.5e-4), (4096, 1.04e-4)])
def test_the_rate_is_the_measured_one_of_small_models_and_the_published_one_of_large(
    width: int, rate: float
) -> None:
    assert LearnerSettings().settled(width).rate == pytest.approx(rate, rel=0.02)


@pytest.mark.parametrize("rank", [0, 16])
def test_a_rate_that_is_given_is_taken_whatever_the_model(rank: int) -> None:
    assert LearnerSettings(lr=3e-5, lora_rank=rank).settled(96).rate == 3e-5


def test_no_rate_is_named_before_the_model_is_known() -> None:
    with pytest.raises(ValueError, match=r"learner\.lr is not given"):
        assert LearnerSettings().rate

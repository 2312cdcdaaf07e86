"""Which turns an update takes, and when."""

from __future__ import annotations

from itertools import chain
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.core.sample import Waiting
from afterwit.learner.schedule import LONGEST_RETRY_S, grouped, in_sight, next_batch, retry_in
from afterwit.learner.settings import LearnerSettings

SETTINGS = LearnerSettings(batch=16, min_batch=4, max_wait_s=1800)
NOW = 10_000.0


def turn(
    seq: int, session: str = "a", *, waited_s: float = 0, version: int = 0, ended: bool = False
) -> Waiting:
    return Waiting(seq=seq, session=session, since=NOW - waited_s, oldest_version=version, ended=ended)


def sessions(names: str, **more: float) -> list[Waiting]:
    """A turn a letter, each letter a session."""
    return [turn(seq, name, **more) for seq, name in enumerate(names)]  # type: ignore[arg-type]


def chosen(settings: LearnerSettings, waiting: list[Waiting], *, version: int = 0) -> tuple[int, ...]:
    return next_batch(settings, waiting, now=NOW, version=version, patience_s=settings.max_wait_s)


def holding(count: int, **more: int) -> LearnerSettings:
    return LearnerSettings(
        **{"segments_per_update": count, "batch": 8, "min_batch": 1, "max_wait_s": 100} | more
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
def test_where_nothing_is_held_back_the_oldest_go_first_whosoever_they_are(
    names: str, batch: int, late: int
) -> None:
    settings = LearnerSettings(batch=batch, min_batch=1, max_wait_s=100)
    waiting = sessions(names, waited_s=100.0 * late)
    due = len(waiting) >= batch or (late and waiting)
    assert chosen(settings, waiting) == (tuple(range(len(waiting)))[:batch] if due else ())


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
    """Four turns are two updates at most, where a group of three leaves room for none of two."""
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


def test_a_group_is_cut_only_where_a_batch_would_have_too_few() -> None:
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


@given(st.integers(1, 8), st.integers(1, 16), st.integers(0, 20), st.integers(0, 20))
def test_where_as_many_wait_as_are_in_sight_a_batch_is_due_whatever_waits_behind_them(
    count: int, batch: int, max_staleness: int, version: int
) -> None:
    """Each in a session of its own that goes on: the most that holding back could hold."""
    count = min(count, batch)
    settings = holding(count, batch=batch, max_staleness=max_staleness)
    seen = [turn(seq, str(seq)) for seq in range(in_sight(settings))]
    assert chosen(settings, seen, version=version) == tuple(range(batch))


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
    for now in range(600):
        for _ in range(random.choice((0, 0, 1, 1, 3)) if now < 300 else 0):
            name, ended = f"session {random.randrange(people)}", random.random() < 0.1
            waiting.append(Waiting(len(taken) + len(waiting), name, float(now), version, ended))
        batch = next_batch(settings, waiting, now=float(now), version=version, patience_s=100.0)
        assert not batch or settings.min_batch <= len(batch) <= settings.batch
        behind = [version - turn.oldest_version for turn in waiting if turn.seq in batch]
        assert all(versions <= max_staleness for versions in behind)
        taken += batch
        waiting = [turn for turn in waiting if turn.seq not in batch]
        version += bool(batch)
    assert len(set(taken)) == len(taken)
    assert len(waiting) < settings.min_batch


def test_retries_double_up_to_an_hour() -> None:
    waits = [retry_in(LearnerSettings(retry_s=30), attempts) for attempts in (0, 1, 2, 10, 10_000)]
    assert waits == [30, 60, 120, LONGEST_RETRY_S, LONGEST_RETRY_S]


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch": 0},
        {"min_batch": 17},
        {"segments_per_update": 0},
        {"segments_per_update": 17},
        {"lr": 0.0},
        {"beta2": 1.0},
        {"teacher": "median"},
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

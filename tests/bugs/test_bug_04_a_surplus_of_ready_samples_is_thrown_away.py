"""When a batch was full, the samples that had become ready meanwhile were dropped."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from afterwit.chat_format.render import Renderer
from afterwit.lifecycle import State
from tests.fakes.judged_samples import a_sample, store_judged
from tests.learning.stage.learning import Place


@pytest.mark.parametrize("turns_per_session_per_update", [1, 3])
def test_what_does_not_fit_into_a_batch_waits_for_the_next_one(
    model: Path, renderer: Renderer, tmp_path: Path, turns_per_session_per_update: int
) -> None:
    place = Place(home=tmp_path, base=model).but(
        batch=4, turns_per_session_per_update=turns_per_session_per_update
    )
    samples = [a_sample(renderer, number) for number in range(11)]
    with place.store() as store, place.versions.learning():
        store_judged(store, samples)
        learn = place.learn(store)
        assert learn.step(follow=False)
        assert store.counts().states == {State.TRAINED: 4, State.JUDGED: 7}
        assert len(store.waiting(now=place.clock.now)) == 7
        while learn.step(follow=False):
            pass
        assert store.counts().states == {State.TRAINED: 11}
    times = Counter(turn for version in place.versions.all() for turn in version.turns)
    assert times == {each.turn.id: 1 for each in samples}


def test_what_becomes_ready_while_a_batch_trains_is_there_for_the_next_one(
    model: Path, renderer: Renderer, tmp_path: Path
) -> None:
    place = Place(home=tmp_path, base=model)
    late = [[a_sample(renderer, 4), a_sample(renderer, 5)]]
    with place.store() as store, place.versions.learning():
        store_judged(store, [a_sample(renderer, number) for number in range(4)])
        learn = place.learn(store, lambda phase: store_judged(store, late.pop()) if late else None)
        assert learn.step(follow=False)
        assert store.counts().states == {State.TRAINED: 4, State.JUDGED: 2}
        assert learn.step(follow=False)
        assert store.counts().states == {State.TRAINED: 6}

"""Turns that wait for a person are not claimed; hints of tools alone do not teach."""

from __future__ import annotations

from collections.abc import Callable

from afterwit.lifecycle import State
from afterwit.store import Store
from afterwit.verdict import Flag, JudgedTurn, Review
from tests.learning.stage.learning import Place, fill, states, status


def flag(store: Store, turn: str, *flags: Flag) -> None:
    """Judge a turn again, with flags."""
    record = store.turn(turn)
    assert record.verdict is not None
    assert record.next_state is not None
    store.answer(turn, (*record.next_state.messages, record.turn.message), answered_by=None, now=1000.0)
    store.claim("judge", owner="judge", limit=9, lease_s=60.0, now=1000.0)
    store.judged(
        turn,
        record.verdict,
        rl=record.rl,
        opd=record.opd,
        reason=None,
        owner="judge",
        now=1000.0,
        flags=flags,
    )


def test_flagged_turns_wait_are_counted_and_train_once_they_are_accepted(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    fill(place, samples(0, 1, 2, 3))
    with place.store() as store:
        for turn in ("turn0000", "turn0001"):
            flag(store, turn, Flag.LINK)
        learn = place.but(min_batch=4).learn(store)
        assert not learn._step_or_report(lambda: False, follow=True)
        assert "2 of 4 turns wait; 2 turns for your review" in status(store).message
        store.review(["turn0000", "turn0001"], accept=True, now=1.0)
        assert learn.step()
    assert set(states(place).values()) == {State.TRAINED}


def test_with_review_of_all_nothing_trains_unseen(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    fill(place, samples(0, 1, 2, 3))
    place = place.but(review=Review.ALL)
    with place.store() as store:
        assert not place.learn(store).step()
        store.review(["turn0002"], accept=True, now=1.0)
    place.drain()
    assert [turn for turn, state in states(place).items() if state is State.TRAINED] == ["turn0002"]


def test_hints_of_tools_alone_reach_the_learner_only_when_they_were_accepted(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    fill(place, samples(0, 1, 2, 3))
    with place.store() as store:
        hinted = next(r for r in store.turns() if r.rl and r.opd)
        flag(store, hinted.turn.id, Flag.TOOL_WORDS)
        record = store.turn(hinted.turn.id)
        (strict,) = place.learn(store)._claims.samples([record])
        (published,) = place.but(tool_hints=True).learn(store)._claims.samples([record])
        store.review([record.turn.id], accept=True, now=1.0)
        (accepted,) = place.learn(store)._claims.samples([store.turn(record.turn.id)])
    assert (strict.rl, strict.opd, strict.verdict.hints) == (True, False, ())
    assert published.opd
    assert accepted.opd
    assert accepted.verdict.hints == record.verdict.hints  # type: ignore[union-attr]


def test_a_source_that_used_up_its_day_waits_for_the_next(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    fill(place, samples(0, 1, 2, 3))
    place = place.but(source_turns_a_day=3)
    with place.store() as store:
        place.learn(store).run(lambda: False, follow=False)
        assert list(states(place).values()).count(State.TRAINED) == 3
        place.clock.now += 86_401.0
        place.learn(store).run(lambda: False, follow=False)
    assert set(states(place).values()) == {State.TRAINED}

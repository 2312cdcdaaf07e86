"""A learner that is killed while it forgets a session: it is forgotten or it is there, never half."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from multiprocessing.context import ForkServerContext
from pathlib import Path
from random import Random

import pytest

from afterwit.errors import TurnNotFound
from afterwit.learning.passes import Phase
from afterwit.lifecycle import Reason
from afterwit.store import Store
from afterwit.verdict import JudgedTurn
from afterwit.version import tainted
from tests.learning.stage.learning import Place, forget_and_die, forget_what_is_ordered
from tests.learning.stage.test_forgetting import GONE, busy, learned, tensors, without

KILLS = 30
TURNS = ("turn0002", "turn0005")
"""Those of the session that is forgotten."""


@pytest.mark.parametrize(
    "phase",
    [
        pytest.param(Phase.SCORING, marks=pytest.mark.slow),
        pytest.param(Phase.STEPPED, marks=pytest.mark.slow),
        pytest.param(Phase.WRITING, marks=pytest.mark.slow),
        Phase.WRITTEN,
    ],
)
def test_killed_it_is_done_or_not_done(
    place: Place, samples: Callable[..., list[JudgedTurn]], processes: ForkServerContext, phase: Phase
) -> None:
    place = busy(place, {})
    learned(place, samples, (0, 1), (2, 3), (4, 5))
    other = at(place, place.home / "other")
    without(place, other, set(TURNS))
    before = tensors(place)
    process = processes.Process(target=forget_and_die, args=(place, GONE, phase))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    committed = place.versions.newest() == 4
    assert committed == (phase is Phase.WRITTEN)
    if not committed:
        assert tensors(place, 3) == before
    place.drain()  # the next learner finishes it
    assert place.versions.newest() == 4
    assert tensors(place) == tensors(other)
    with place.store() as store:
        assert store.counts().reasons == {Reason.FORGOTTEN: 2}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_at_any_moment_it_is_done_or_not_done(
    place: Place, samples: Callable[..., list[JudgedTurn]], processes: ForkServerContext, tmp_path: Path
) -> None:
    place = busy(at(place, tmp_path / "home"), {})
    learned(place, samples, (0, 1), (2, 3), (4, 5))
    other = at(place, tmp_path / "other")
    without(place, other, set(TURNS))
    before, after = tensors(place), tensors(other)
    with place.store() as store:
        said = [store.turn(turn).turn.conversation.messages[-1].content or "" for turn in TURNS]
        store.order_forgetting(GONE, replay=True, now=1.0)
    assert all(text.encode() in bytes_of(place) for text in said)
    took = forgetting(copied(place, tmp_path / "undisturbed"), processes, killed_after_s=None)
    chance = Random(11)
    for number in range(KILLS):
        one = copied(place, tmp_path / f"killed-{number}")
        forgetting(one, processes, killed_after_s=chance.uniform(0.0, took))
        done(one, before, after)
        one.drain()  # the next learner finishes it
        assert done(one, before, after)
        assert not any(text.encode() in bytes_of(one) for text in said)
        assert not tainted(one.versions.all(), one.versions.has_weights, TURNS)


def at(place: Place, home: Path) -> Place:
    home.mkdir()
    return replace(place, home=home)


def copied(place: Place, home: Path) -> Place:
    shutil.copytree(place.home, home)
    return replace(place, home=home)


def forgetting(place: Place, processes: ForkServerContext, *, killed_after_s: float | None) -> float:
    """A learner carries out the order; how many seconds it lived."""
    process = processes.Process(target=forget_what_is_ordered, args=(place,))
    began = time.monotonic()
    process.start()
    process.join(killed_after_s)
    process.kill()
    process.join()
    return time.monotonic() - began


def done(place: Place, before: Mapping[str, bytes], after: Mapping[str, bytes]) -> bool:
    """Whether the newest weights are those of a run without the session; and nothing is half of either.

    Until they are, the text is whole and the order stands; then the text is gone, or stands with the order.
    """
    forgotten = place.versions.newest() == 4
    assert tensors(place) == (after if forgotten else before)
    with place.store() as store:
        there = [turn for turn in TURNS if has_text(store, turn)]
        assert there in ([], list(TURNS))
        assert there or forgotten
        assert bool(store.forget_orders()) == bool(there)
    return forgotten


def bytes_of(place: Place) -> bytes:
    return b"".join(file.read_bytes() for file in place.home.glob("store.db*"))


def has_text(store: Store, turn: str) -> bool:
    try:
        store.turn(turn)
    except TurnNotFound:
        return False
    return True

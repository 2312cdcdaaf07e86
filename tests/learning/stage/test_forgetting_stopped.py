"""A learner that is stopped, or killed, while it forgets: it ends soon, and goes on where it was."""

from __future__ import annotations

import signal
from collections.abc import Callable
from multiprocessing.context import ForkServerContext

import pytest

from afterwit.learning.forgetting import HALFWAY_FOLDER, KEPT_EVERY
from afterwit.learning.passes import Phase
from afterwit.verdict import JudgedTurn
from afterwit.version import Origin
from tests.learning.stage.learning import Place, forget_until
from tests.learning.stage.test_forgetting import GONE, busy, learned, tensors, without
from tests.learning.stage.test_forgetting_killed import at

UPDATES = KEPT_EVERY + 3
"""After the first, which taught nothing of the session."""


@pytest.mark.slow  # eleven updates and their replay
@pytest.mark.parametrize(
    "way",
    [{}, {"lora_rank": 4, "teacher": "ema"}],
    ids=["whole", "lora"],
)
@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_soon_and_goes_on_to_the_bit(
    place: Place,
    samples: Callable[..., list[JudgedTurn]],
    processes: ForkServerContext,
    told: signal.Signals,
    way: dict[str, object],
) -> None:
    place = busy(place, way)
    learned(place, samples, (0, 1), (2, 3), *((10 + 2 * n, 11 + 2 * n) for n in range(UPDATES - 1)))
    newest, dead = place.versions.newest(), KEPT_EVERY + 2
    other = at(place, place.home / "other")
    without(place, other, {"turn0002"})
    before = tensors(place)
    with place.store() as store:
        store.order_forgetting(GONE, replay=True, now=1.0)
    process = processes.Process(target=forget_until, args=(place, told, dead))
    process.start()
    process.join()
    assert process.exitcode == (0 if told is signal.SIGTERM else -signal.SIGKILL)
    if told is signal.SIGTERM:
        asked, steps_after = map(int, (place.home / "asked").read_text().split())
        assert steps_after <= 1
        assert asked >= 2 * place.settings.epochs * (dead - 1)  # before and after each of their steps
    assert (place.versions.newest(), tensors(place)) == (newest, before)
    with place.store() as store:
        assert [order.session for order in store.forget_orders()] == [GONE]
        (status,) = store.statuses()
        assert status.message == f"forgetting: update {dead} of {UPDATES}"
    phases: list[Phase] = []
    with place.store() as store:
        place.learn(store, phases.append).run(lambda: False, follow=False)
    assert phases.count(Phase.STEPPED) == place.settings.epochs * (UPDATES - KEPT_EVERY)
    made = place.versions.all()[-1]
    assert (made.number, made.origin, len(made.replays)) == (newest + 1, Origin.REPLAY, UPDATES)
    assert tensors(place) == tensors(other)
    assert not (place.versions.root / HALFWAY_FOLDER).exists()


@pytest.mark.slow  # ten updates and their replay
def test_what_was_kept_of_another_plan_is_not_gone_on_with(
    place: Place, samples: Callable[..., list[JudgedTurn]], processes: ForkServerContext
) -> None:
    """While it is dead, another session is ordered to be forgotten, and a rollback comes."""
    place = busy(place, {})
    learned(place, samples, (0, 1), (2, 3), *((10 + 2 * n, 11 + 2 * n) for n in range(UPDATES - 1)))
    with place.store() as store:
        store.order_forgetting(GONE, replay=True, now=1.0)
    process = processes.Process(target=forget_until, args=(place, signal.SIGKILL, KEPT_EVERY + 1))
    process.start()
    process.join()
    assert (place.versions.root / HALFWAY_FOLDER).exists()
    with place.store() as store:
        store.cancel_forgetting(GONE)
        store.order_forgetting("s10", replay=True, now=2.0)
        place.learn(store).run(lambda: False, follow=False)
    made = place.versions.all()[-1]
    assert made.without == ("turn0010",)
    other = at(place, place.home / "other")
    without(place, other, {"turn0010"})
    assert tensors(place) == tensors(other)
    assert not (place.versions.root / HALFWAY_FOLDER).exists()

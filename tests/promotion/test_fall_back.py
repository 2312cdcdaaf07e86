"""To which version a hold or an alarm returns."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from afterwit.promotion.events import Event, EventKind
from afterwit.promotion.gate import due, places_to_return_to
from afterwit.promotion.suite import Standing, SuiteResult
from afterwit.version import Origin, Version
from tests.store.examples import a_version

HOLD, ALARM, CONFIRM = EventKind.HOLD, EventKind.ALARM, EventKind.CONFIRM
CLEAN, DOUBTFUL = Standing.CLEAN, Standing.DOUBTFUL


def versions(*standings: Standing | int) -> list[Version]:
    """The base, then one version each; a number is a rollback to that version."""
    found = [a_version(0, parent=None, origin=Origin.BASE)]
    for number, standing in enumerate(standings, start=1):
        if isinstance(standing, Standing):
            suite = SuiteResult(lost={}, evidence=1.0, standing=standing)
            found.append(a_version(number, suite=suite))
        else:
            reverts = tuple(range(standing + 1, number))
            found.append(a_version(number, origin=Origin.ROLLBACK, restores=standing, reverts=reverts))
    return found


def events(*kinds: tuple[EventKind, int]) -> list[Event]:
    return [
        Event(kind=kind, at=float(at), version=version, evidence=1.0, words="")
        for at, (kind, version) in enumerate(kinds)
    ]


def target(happened: Sequence[Event], known: Sequence[Version], without: Sequence[int] = ()) -> int | None:
    found = due(happened, known, lambda number: number not in without)
    return None if found is None else found[0]


@pytest.mark.parametrize(
    ("happened", "standings", "expected"),
    [
        ([], [CLEAN, DOUBTFUL], None),
        ([(CONFIRM, 1)], [CLEAN, DOUBTFUL], None),
        ([(HOLD, 2)], [CLEAN, CLEAN], None),
        ([(HOLD, 2)], [CLEAN, DOUBTFUL], 1),
        ([(HOLD, 3)], [CLEAN, DOUBTFUL, DOUBTFUL], 1),
        ([(HOLD, 2)], [DOUBTFUL, DOUBTFUL], 0),
        ([(HOLD, 2)], [CLEAN, DOUBTFUL, 1], None),
        ([(HOLD, 3)], [CLEAN, DOUBTFUL, 1], None),
        ([(ALARM, 3)], [CLEAN, CLEAN, CLEAN], 0),
        ([(CONFIRM, 2), (ALARM, 3)], [CLEAN, CLEAN, CLEAN], 2),
        ([(CONFIRM, 2), (ALARM, 3)], [CLEAN, CLEAN, CLEAN, CLEAN], 2),
        ([(CONFIRM, 2), (ALARM, 3)], [CLEAN, DOUBTFUL, CLEAN], 2),
        ([(CONFIRM, 2), (ALARM, 3)], [CLEAN, CLEAN, CLEAN, 2], None),
        ([(ALARM, 3)], [CLEAN, CLEAN, CLEAN, 0, CLEAN], None),
        ([(ALARM, 3), (HOLD, 5)], [CLEAN, CLEAN, CLEAN, 0, DOUBTFUL], 4),
        ([(CONFIRM, 3), (ALARM, 3)], [CLEAN, CLEAN, CLEAN], None),
    ],
)
def test_a_hold_returns_to_the_last_clean_version_and_an_alarm_to_the_confirmed_one(
    happened, standings, expected
):
    assert target(events(*happened), versions(*standings)) == expected


def test_a_version_whose_weights_are_gone_is_passed_over():
    known = versions(CLEAN, CLEAN, CLEAN)
    assert target(events((CONFIRM, 2), (ALARM, 3)), known, without=[2]) == 1
    assert target(events((CONFIRM, 2), (ALARM, 3)), known, without=[1, 2]) == 0


def test_without_versions_there_is_nothing_to_return_from():
    assert target(events((ALARM, 0)), []) is None


def test_the_places_to_return_to_keep_their_weights():
    known = versions(CLEAN, CLEAN, DOUBTFUL)
    assert places_to_return_to(events((CONFIRM, 1)), known) == {1, 2}
    assert places_to_return_to([], []) == {0}

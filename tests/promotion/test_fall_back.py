"""To which version a hold or an alarm returns."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from afterwit.promotion.episodes import Event, EventKind, due
from afterwit.version import Origin, SuiteResult, Version
from tests.store.examples import a_version

HOLD, ALARM, CONFIRM = EventKind.HOLD, EventKind.ALARM, EventKind.CONFIRM
UPDATE = None
LOST = SuiteResult(lost={"text": (1, 4)}, evidence=1.0, lost_turns=("t",))
NOTHING_LOST = SuiteResult(lost={"text": (0, 4)}, evidence=0.5)


def versions(*restores: int | None) -> list[Version]:
    """The base, then an update or a rollback each."""
    found = [a_version(0, parent=None, origin=Origin.BASE)]
    for number, to in enumerate(restores, start=1):
        if to is None:
            found.append(a_version(number, suite=LOST))
        else:
            reverts = tuple(range(to + 1, number))
            found.append(a_version(number, origin=Origin.ROLLBACK, restores=to, reverts=reverts))
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
    ("happened", "made", "expected"),
    [
        ([], [UPDATE], None),
        ([(CONFIRM, 1)], [UPDATE] * 2, None),
        ([(HOLD, 2)], [UPDATE] * 2, 0),
        ([(CONFIRM, 1), (HOLD, 2)], [UPDATE] * 2, 1),
        ([(CONFIRM, 2), (HOLD, 2)], [UPDATE] * 2, None),
        ([(CONFIRM, 1), (HOLD, 2), (HOLD, 2)], [UPDATE] * 2, 1),
        ([(CONFIRM, 1), (HOLD, 2)], [UPDATE] * 3, None),
        ([(CONFIRM, 1), (HOLD, 2)], [UPDATE, UPDATE, 1], None),
        ([(CONFIRM, 1), (HOLD, 3)], [UPDATE, UPDATE, 1], None),
        ([(ALARM, 3)], [UPDATE] * 3, 0),
        ([(CONFIRM, 2), (ALARM, 3)], [UPDATE] * 3, 2),
        ([(CONFIRM, 2), (ALARM, 3)], [UPDATE] * 4, 2),
        ([(CONFIRM, 2), (ALARM, 3)], [UPDATE, UPDATE, UPDATE, 2], None),
        ([(ALARM, 3)], [UPDATE, UPDATE, UPDATE, 0, UPDATE], None),
        ([(CONFIRM, 3), (ALARM, 3)], [UPDATE] * 3, None),
        ([(CONFIRM, 1), (ALARM, 3), (CONFIRM, 2)], [UPDATE] * 3, 1),
    ],
)
def test_a_hold_and_an_alarm_return_to_the_confirmed_version(happened, made, expected):
    assert target(events(*happened), versions(*made)) == expected


def test_a_version_whose_weights_are_gone_gives_way_to_the_one_confirmed_before_it():
    known, happened = versions(*[UPDATE] * 4), events((CONFIRM, 1), (CONFIRM, 3), (ALARM, 4))
    assert target(happened, known) == 3
    assert target(happened, known, without=[3]) == 1
    assert target(happened, known, without=[1, 3]) == 0


@pytest.mark.parametrize("suite", [None, NOTHING_LOST])
def test_after_a_hold_a_version_that_lost_nothing_stays(suite):
    known = [*versions(UPDATE), a_version(2, suite=suite)]
    assert target(events((HOLD, 2)), known) is None
    assert target(events((ALARM, 2)), known) == 0


def test_without_versions_there_is_nothing_to_return_from():
    assert target(events((ALARM, 0)), []) is None

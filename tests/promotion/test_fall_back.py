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
def test_a_hold_and_an_alarm_return_to_the_confirmed_version_if_all_since_lost_something(
    happened, made, expected
):
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


def learned(*suites: SuiteResult) -> list[Version]:
    """The base, then an update with each of these results."""
    return [*versions(), *(a_version(number, suite=suite) for number, suite in enumerate(suites, start=1))]


def returned(known: list[Version], to: int) -> list[Version]:
    number = known[-1].number + 1
    reverts = tuple(range(to + 1, number))
    back = a_version(number, parent=number - 1, origin=Origin.ROLLBACK, restores=to, reverts=reverts)
    return [*known, back]


def test_a_hold_returns_to_the_newest_version_that_lost_nothing_and_no_further():
    known = learned(NOTHING_LOST, NOTHING_LOST, LOST, LOST)
    assert target(events((HOLD, 4)), known) == 2
    assert target(events((HOLD, 4)), known, without=[2]) == 1
    assert target(events((CONFIRM, 1), (HOLD, 4)), known) == 2
    assert target(events((CONFIRM, 3), (HOLD, 4)), known) == 3, "never before the confirmed one"
    assert target(events((CONFIRM, 1), (ALARM, 4)), known) == 1, "an alarm returns to the confirmed one"


def test_a_version_that_was_tested_in_other_kinds_alone_is_no_proof_that_it_lost_nothing():
    other = SuiteResult(lost={"edit": (0, 4)}, evidence=0.5)
    assert target(events((HOLD, 3)), learned(NOTHING_LOST, other, LOST)) == 1
    assert target(events((HOLD, 2)), learned(other, LOST)) == 0


def test_a_version_that_was_taken_back_is_not_returned_to():
    known = returned(learned(NOTHING_LOST, NOTHING_LOST, LOST), 1)
    assert target(events((HOLD, 5)), [*known, a_version(5, parent=4, suite=LOST)]) == 1


def test_a_second_hold_after_such_a_return_goes_to_the_confirmed_version():
    known = returned(learned(NOTHING_LOST, NOTHING_LOST, LOST), 2)
    assert target(events((HOLD, 3)), known) is None, "it was returned to"
    assert target(events((CONFIRM, 1), (HOLD, 3), (HOLD, 4)), known) == 1
    assert target(events((HOLD, 3), (HOLD, 4)), known) == 0
    assert target(events((CONFIRM, 1), (HOLD, 4)), known) is None, "a person returned to it"

import pytest

from afterwit.promotion.episodes import (
    Event,
    EventKind,
    alarms_in_a_row,
    back_off,
    confirmed,
)

HOLD, ALARM, CONFIRM = EventKind.HOLD, EventKind.ALARM, EventKind.CONFIRM


def events(*kinds: tuple[EventKind, int]) -> list[Event]:
    return [
        Event(kind=kind, at=float(at), version=version, evidence=1.0, words="")
        for at, (kind, version) in enumerate(kinds)
    ]


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([], 1.0),
        ([CONFIRM], 1.0),
        ([HOLD], 1 / 3),
        ([ALARM, HOLD, HOLD, HOLD], 1 / 9),
        ([HOLD, CONFIRM], 1.25 / 3),
        ([HOLD, *[CONFIRM] * 5], 1.0),
    ],
)
def test_the_step_size_falls_fast_and_recovers_slowly_and_the_reference_pulls_meanwhile(kinds, expected):
    share, pull = back_off(events(*((kind, 1) for kind in kinds)))
    assert share == pytest.approx(expected)
    assert pull == pytest.approx(0.15 * (1 - expected))


def test_an_alarm_falls_back_to_the_last_confirmed_version_or_to_the_base():
    assert confirmed(events((HOLD, 7))) == 0
    assert confirmed(events((CONFIRM, 3), (CONFIRM, 5), (HOLD, 7))) == 5


def test_alarms_in_a_row_have_no_confirmation_between_them():
    assert alarms_in_a_row([]) == 0
    assert alarms_in_a_row(events((ALARM, 1), (HOLD, 2), (ALARM, 3))) == 2
    assert alarms_in_a_row(events((ALARM, 1), (CONFIRM, 2), (ALARM, 3))) == 1

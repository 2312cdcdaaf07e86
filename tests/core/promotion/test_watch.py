import pytest

from afterwit.core.promotion import BadEnd, SessionEnd, Watch, bad_end


def end(**changes) -> SessionEnd:
    facts = {"reward": 1, "hinted": False, "repeated_call": False, "cut_at_length": False}
    return SessionEnd(**(facts | changes))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"reward": 0}, None),
        ({"reward": -1, "hinted": True}, None),
        ({"reward": -1}, BadEnd.DISPLEASED),
        ({"repeated_call": True}, BadEnd.REPEATED_CALL),
        ({"cut_at_length": True}, BadEnd.CUT_AT_LENGTH),
        ({"reward": None}, BadEnd.NOBODY),
        ({"reward": -1, "repeated_call": True}, BadEnd.DISPLEASED),
    ],
)
def test_a_session_is_bad_unless_people_got_something_from_it(changes, expected):
    assert bad_end(end(**changes)) is expected


def test_a_version_is_confirmed_by_six_sessions_in_a_row():
    watch = Watch()
    assert not watch.confirms([False] * 5)
    assert not watch.confirms([False] * 5 + [True])
    assert watch.confirms([True] + [False] * 6)


def test_many_bad_sessions_are_an_alarm_and_few_are_none():
    watch = Watch()
    assert watch.evidence([]) == 0
    assert not watch.alarms([False, True] + [False] * 10)
    assert watch.alarms([False] * 10 + [True] * 6)

from afterwit.core.promotion import Watch


def test_a_version_is_confirmed_by_six_episodes_in_a_row():
    watch = Watch()
    assert not watch.confirms([False] * 5)
    assert not watch.confirms([False] * 5 + [True])
    assert watch.confirms([True] + [False] * 6)
    assert not watch.confirms([False] * 7)
    assert watch.confirms([False] * 12)
    assert not watch.confirms([])


def test_many_bad_episodes_are_an_alarm_and_few_are_none():
    watch = Watch()
    assert watch.evidence([]) == 0
    assert not watch.alarms([False, True] + [False] * 10)
    assert watch.alarms([False] * 10 + [True] * 6)

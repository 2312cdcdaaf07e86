from afterwit.core.promotion import Watch

GOOD = (0, 20)
"""Of 20 episodes before, none ended badly."""


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
    assert watch.evidence([], before=GOOD) == 0
    assert not watch.alarms([False, True] + [False] * 10, before=GOOD)
    assert watch.alarms([False] * 10 + [True] * 4, before=GOOD)


def test_people_who_were_displeased_before_are_no_alarm():
    watch, bad = Watch(), [True, True, False] * 8
    assert watch.alarms(bad, before=GOOD)
    assert not watch.alarms(bad, before=(20, 30))
    assert not watch.alarms([True] * 4, before=(0, 0))
    assert watch.alarms([True] * 12, before=(0, 0))

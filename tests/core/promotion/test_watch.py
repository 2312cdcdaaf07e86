from afterwit.stages.promotion.settings import PromotionSettings

WATCH = PromotionSettings().watch
GOOD = (0, 20)
"""Of 20 episodes before, none ended badly."""


def alarms(bad: list[bool], *, before: tuple[int, int]) -> bool:
    return WATCH.evidence(bad, before=before) >= WATCH.alarm_at


def test_a_version_is_confirmed_by_six_episodes_in_a_row():
    def confirms(*bad: bool) -> bool:
        return WATCH.confirms(bad, before=GOOD)

    assert not confirms(*[False] * 5)
    assert not confirms(*[False] * 5, True)
    assert confirms(True, *[False] * 6)
    assert not confirms(*[False] * 7)
    assert confirms(*[False] * 12)
    assert not confirms()


def test_a_row_of_good_episodes_among_many_bad_ones_confirms_nothing():
    bad = [True, False] * 9 + [False] * 5
    assert not WATCH.confirms(bad, before=GOOD)
    assert WATCH.confirms(bad, before=(10, 20))
    assert WATCH.confirms([*bad, *[False] * 18], before=GOOD)


def test_many_bad_episodes_are_an_alarm_and_few_are_none():
    assert WATCH.evidence([], before=GOOD) == 0
    assert not alarms([False, True] + [False] * 10, before=GOOD)
    assert alarms([False] * 10 + [True] * 4, before=GOOD)


def test_people_who_were_displeased_before_are_no_alarm():
    bad = [True, True, False] * 8
    assert alarms(bad, before=GOOD)
    assert not alarms(bad, before=(20, 30))
    assert not alarms([True] * 8, before=(2, 2))
    assert alarms([True] * 4, before=(0, 0))


def test_a_few_good_episodes_before_are_no_reason_to_expect_more_bad_ones():
    assert WATCH.evidence([True] * 3, before=(0, 2)) == WATCH.evidence([True] * 3, before=GOOD)

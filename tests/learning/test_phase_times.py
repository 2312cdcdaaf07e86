"""The seconds of each phase of an update."""

from __future__ import annotations

from afterwit.learning.passes import Phase, PhaseTimes


def test_each_second_of_an_update_belongs_to_what_ended_it() -> None:
    times, seen = iter([0.0, 1.0, 3.0, 3.5, 5.0, 9.0]), list[Phase]()
    watch = PhaseTimes(seen.append, clock=lambda: next(times))
    for phase in (Phase.SCORING, Phase.SCORING, Phase.STEPPED):
        watch(phase)
    watch.done("effects")
    watch(Phase.WRITING)
    watch.done("suite")
    assert watch.metrics() == {
        "seconds_passes": 3.0,
        "seconds_step": 0.5,
        "seconds_effects": 1.5,
        "seconds_suite": 4.0,
    }
    assert seen == [Phase.SCORING, Phase.SCORING, Phase.STEPPED, Phase.WRITING]

"""The versions to delete, the one to begin from, and the updates to run again."""

from __future__ import annotations

from afterwit.learning.forgetting import plan
from afterwit.version import Origin, Probe, Version, learned, tainted, turns_in

PROBE = Probe(ids=(1, 2), logprobs=(-1.0,))
ALL = lambda number: True  # noqa: E731


def update(number: int, *turns: str, parent: int | None = None, replayed: tuple[str, ...] = ()) -> Version:
    return Version(
        number=number,
        parent=number - 1 if parent is None else parent,
        origin=Origin.UPDATE,
        created=0.0,
        turns=turns,
        replayed=replayed,
        probe=PROBE,
    )


def made(number: int, origin: Origin, **more: object) -> Version:
    return Version(
        number=number, parent=number - 1 if number else None, origin=origin, created=0.0, probe=PROBE, **more
    )  # type: ignore[arg-type]


BASE = made(0, Origin.BASE)
LINE = [BASE, update(1, "a"), update(2, "b"), update(3, "c", "d", replayed=("b",)), update(4, "e")]


def test_it_begins_behind_the_last_version_that_holds_nothing_of_it() -> None:
    found = plan(LINE, {"c"}, ALL)
    assert found is not None
    assert found.start == 2
    assert [(step.version.number, step.turns, step.replayed, step.whole) for step in found.steps] == [
        (3, ("d",), ("b",), False),
        (4, ("e",), (), False),
    ]


def test_without_those_weights_it_begins_earlier_and_what_is_whole_is_said() -> None:
    found = plan(LINE, {"e"}, lambda number: number in (0, 1, 4))
    assert found is not None
    assert (found.start, [step.version.number for step in found.steps]) == (1, [2, 3])
    assert all(step.whole for step in found.steps)


def test_a_replayed_turn_counts_and_an_update_without_new_turns_is_left_out() -> None:
    found = plan(LINE, {"b"}, ALL)
    assert found is not None
    assert found.start == 1
    assert [(step.version.number, step.replayed) for step in found.steps] == [(3, ()), (4, ())]


def test_what_the_newest_weights_do_not_hold_needs_no_plan() -> None:
    back = made(5, Origin.ROLLBACK, restores=1, reverts=(2, 3, 4))
    assert plan([*LINE, back], {"c"}, ALL) is None
    assert plan([], {"c"}, ALL) is None
    assert tainted([*LINE, back], ALL, {"c"}) == (3, 4)


def test_a_replay_holds_its_updates_without_the_turns_that_it_leaves_out() -> None:
    again = made(5, Origin.REPLAY, begins=2, replays=(3, 4), forgets=("s",), without=("c",))
    versions = [*LINE, again, update(6, "f")]
    by_number = {version.number: version for version in versions}
    assert learned(6, by_number) == {1, 2, 3, 4, 6}
    assert turns_in(6, by_number) == {"a", "b", "d", "e", "f"}
    assert tainted(versions, ALL) == (3, 4)
    assert tainted(LINE, ALL) == ()
    found = plan(versions, {"f"}, lambda number: number in (0, 1, 2, 5, 6))
    assert found is not None
    assert (found.start, found.steps) == (5, ())
    found = plan(versions, {"e"}, lambda number: number in (0, 1, 2, 5, 6))
    assert found is not None
    assert (found.start, [step.version.number for step in found.steps]) == (2, [3, 6])

"""Who comes next."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from afterwit.engines.embedded.queue import PATIENCE, Line, in_turn, reads_next


@dataclass(frozen=True, eq=False)
class Waiting:
    background: bool = False


PERSON, JUDGE = Waiting(), Waiting(background=True)


def line(*waiters: Waiting, slots: int = 4, reserve: int = 1) -> Line[Waiting]:
    made: Line[Waiting] = Line(slots=slots, reserve=reserve)
    for waiter in waiters:
        made.add(waiter)
    return made


def test_people_come_before_background_in_order_of_arrival() -> None:
    one, two = Waiting(), Waiting()
    queue = line(JUDGE, one, two)
    assert [queue.next(()) for _ in range(4)] == [one, two, JUDGE, None]


def test_a_waiting_background_request_lets_only_so_many_pass() -> None:
    queue = line(JUDGE, *(Waiting() for _ in range(20)))
    order = [queue.next(()) for _ in range(PATIENCE + 1)]
    assert order.index(JUDGE) == PATIENCE


def test_the_reserve_is_kept_from_background_and_given_to_people() -> None:
    queue = line(JUDGE)
    assert queue.next([JUDGE] * 3) is None
    queue.add(PERSON)
    assert queue.next([JUDGE] * 3) is PERSON


def test_with_one_slot_background_may_have_it() -> None:
    assert line(JUDGE, slots=1, reserve=1).next(()) is JUDGE


@given(
    waiters=st.lists(st.booleans(), max_size=30),
    running=st.lists(st.booleans(), max_size=6),
    slots=st.integers(1, 6),
)
def test_nobody_is_lost_and_no_slot_given_twice(waiters: list[bool], running: list[bool], slots: int) -> None:
    queue = line(*(Waiting(background) for background in waiters), slots=slots, reserve=slots // 4)
    held = [Waiting(background) for background in running]
    before = len(queue)
    taken = 0
    while waiter := queue.next(held):
        held.append(waiter)
        taken += 1
    assert len(queue) + taken == before
    assert taken == 0 or len(held) <= slots


def test_one_who_leaves_the_line_is_not_called() -> None:
    queue = line(PERSON, JUDGE)
    assert queue.remove(PERSON)
    assert not queue.remove(PERSON)
    assert queue.next(()) is JUDGE


def test_prompts_are_read_peoples_first_and_background_now_and_then() -> None:
    read = [reads_next([JUDGE, PERSON], tick) for tick in range(PATIENCE)]
    assert read.count(JUDGE) == 1
    assert reads_next([JUDGE], 1) is JUDGE


def test_a_lane_with_background_work_only_steps_now_and_then_while_people_are_served() -> None:
    steps = [in_turn(background_only=True, people_elsewhere=True, tick=tick) for tick in range(PATIENCE)]
    assert steps.count(True) == 1
    assert in_turn(background_only=True, people_elsewhere=False, tick=1)
    assert in_turn(background_only=False, people_elsewhere=True, tick=1)

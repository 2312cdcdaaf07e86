"""Who comes next."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from afterwit.engines.embedded.queue import BACKGROUND_EVERY, RequestQueue, next_prefill, runs_now


@dataclass(frozen=True, eq=False)
class Waiting:
    background: bool = False


FOREGROUND, BACKGROUND = Waiting(), Waiting(background=True)


def request_queue(*requests: Waiting, slots: int = 4, reserve: int = 1) -> RequestQueue[Waiting]:
    made: RequestQueue[Waiting] = RequestQueue(slots=slots, reserve=reserve)
    for request in requests:
        made.add(request)
    return made


def test_people_come_before_background_in_order_of_arrival() -> None:
    one, two = Waiting(), Waiting()
    queue = request_queue(BACKGROUND, one, two)
    assert [queue.next(()) for _ in range(4)] == [one, two, BACKGROUND, None]


def test_a_waiting_background_request_lets_only_so_many_pass() -> None:
    queue = request_queue(BACKGROUND, *(Waiting() for _ in range(20)))
    order = [queue.next(()) for _ in range(BACKGROUND_EVERY + 1)]
    assert order.index(BACKGROUND) == BACKGROUND_EVERY


def test_the_reserve_is_kept_from_background_and_given_to_people() -> None:
    queue = request_queue(BACKGROUND)
    assert queue.next([BACKGROUND] * 3) is None
    queue.add(FOREGROUND)
    assert queue.next([BACKGROUND] * 3) is FOREGROUND


def test_with_one_slot_background_may_have_it() -> None:
    assert request_queue(BACKGROUND, slots=1, reserve=1).next(()) is BACKGROUND


@given(
    requests=st.lists(st.booleans(), max_size=30),
    running=st.lists(st.booleans(), max_size=6),
    slots=st.integers(1, 6),
)
def test_nobody_is_lost_and_no_slot_given_twice(
    requests: list[bool], running: list[bool], slots: int
) -> None:
    queue = request_queue(*(Waiting(background) for background in requests), slots=slots, reserve=slots // 4)
    held = [Waiting(background) for background in running]
    before = len(queue)
    taken = 0
    while request := queue.next(held):
        held.append(request)
        taken += 1
    assert len(queue) + taken == before
    assert taken == 0 or len(held) <= slots


def test_one_who_leaves_the_line_is_not_called() -> None:
    queue = request_queue(FOREGROUND, BACKGROUND)
    assert queue.remove(FOREGROUND)
    assert not queue.remove(FOREGROUND)
    assert queue.next(()) is BACKGROUND


def test_prompts_are_read_peoples_first_and_background_now_and_then() -> None:
    read = [next_prefill([BACKGROUND, FOREGROUND], tick) for tick in range(BACKGROUND_EVERY)]
    assert read.count(BACKGROUND) == 1
    assert next_prefill([BACKGROUND], 1) is BACKGROUND


def test_a_lane_with_background_work_only_steps_now_and_then_while_people_are_served() -> None:
    steps = [
        runs_now(background_only=True, foreground_elsewhere=True, tick=tick)
        for tick in range(BACKGROUND_EVERY)
    ]
    assert steps.count(True) == 1
    assert runs_now(background_only=True, foreground_elsewhere=False, tick=1)
    assert runs_now(background_only=False, foreground_elsewhere=True, tick=1)

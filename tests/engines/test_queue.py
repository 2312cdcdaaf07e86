"""The choice of the next request to start, and of the prompt to continue reading."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from afterwit.engines.embedded.runner import BACKGROUND_EVERY, RequestQueue, next_prefill


@dataclass(frozen=True, eq=False)
class Waiting:
    background: bool = False
    read: int = 0
    further: bool = False


FOREGROUND, BACKGROUND = Waiting(), Waiting(background=True)


def queue_of(*requests: Waiting, slots: int = 4, reserve: int = 1) -> RequestQueue:
    queue: RequestQueue = RequestQueue(slots=slots, reserve=reserve)
    for request in requests:
        queue.append(request)
    return queue


def test_foreground_requests_come_first_in_order_of_arrival() -> None:
    one, two = Waiting(), Waiting()
    queue = queue_of(BACKGROUND, one, two)
    assert [queue.next(()) for _ in range(4)] == [one, two, BACKGROUND, None]


def test_a_background_request_is_passed_four_times_at_most() -> None:
    queue = queue_of(BACKGROUND, *(Waiting() for _ in range(20)))
    order = [queue.next(()) for _ in range(BACKGROUND_EVERY + 1)]
    assert order.index(BACKGROUND) == BACKGROUND_EVERY


def test_reserved_slots_are_for_the_foreground_only() -> None:
    queue = queue_of(BACKGROUND)
    assert queue.next([BACKGROUND] * 3) is None
    queue.append(FOREGROUND)
    assert queue.next([BACKGROUND] * 3) is FOREGROUND


def test_a_single_slot_may_go_to_the_background() -> None:
    assert queue_of(BACKGROUND, slots=1, reserve=1).next(()) is BACKGROUND


def test_the_choices_of_one_response_leave_a_slot_and_later_requests_come_between_them() -> None:
    """`n = 16` on four slots, and two requests of others that come later."""
    choices = [Waiting(), *(Waiting(further=True) for _ in range(15))]
    queue, running = queue_of(*choices), list[Waiting]()
    while (started := queue.next(running)) is not None:
        running.append(started)
    assert running == choices[:3]
    others = [Waiting(), Waiting()]
    queue.extend(others)
    assert queue.next(running) is others[0]
    assert queue.next(choices[:3]) is others[1]
    assert queue.next(choices[:2]) is choices[3]
    assert queue_of(choices[1], slots=1).next(()) is choices[1]


def test_a_further_choice_is_passed_four_times_at_most() -> None:
    choice = Waiting(further=True)
    queue = queue_of(choice, *(Waiting() for _ in range(20)))
    assert [queue.next(()) for _ in range(BACKGROUND_EVERY + 1)].index(choice) == BACKGROUND_EVERY


@given(
    requests=st.lists(st.booleans(), max_size=30),
    running=st.lists(st.booleans(), max_size=6),
    slots=st.integers(1, 6),
)
def test_no_request_is_lost_and_no_slot_is_given_twice(
    requests: list[bool], running: list[bool], slots: int
) -> None:
    queue = queue_of(*(Waiting(background) for background in requests), slots=slots, reserve=slots // 4)
    held = [Waiting(background) for background in running]
    before = len(queue)
    taken = 0
    while request := queue.next(held):
        held.append(request)
        taken += 1
    assert len(queue) + taken == before
    assert taken == 0 or len(held) <= slots


def test_a_request_that_was_removed_does_not_start() -> None:
    queue = queue_of(FOREGROUND, BACKGROUND)
    queue.remove(FOREGROUND)
    assert queue.next(()) is BACKGROUND


def test_the_prompt_of_which_least_is_read_is_read_on() -> None:
    long, short = Waiting(read=9000), Waiting(read=12)
    assert next_prefill([long, short], 1) is short
    assert next_prefill([long, Waiting(read=9000)], 1) is long


def test_foreground_prompts_are_read_first_and_background_ones_every_fourth_tick() -> None:
    read = [next_prefill([BACKGROUND, FOREGROUND], tick) for tick in range(BACKGROUND_EVERY)]
    assert read.count(BACKGROUND) == 1
    assert next_prefill([BACKGROUND], 1) is BACKGROUND

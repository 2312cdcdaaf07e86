"""Several turns and several workers at the same time."""

from __future__ import annotations

import asyncio

import pytest

from afterwit.lifecycle import State
from afterwit.turn import Conversation, Kind, Message
from afterwit.worker import Signals
from tests.judging.stage.house import House
from tests.store.examples import add


async def test_a_cancelled_step_gives_its_turn_back_at_once(house):
    house.client.hold = asyncio.Event()
    await house.answered("t1")
    judging = asyncio.create_task(house.judge.step())
    await asyncio.wait_for(house.client.called.wait(), 5)
    judging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await judging
    record = await house.record("t1")
    assert (record.state, record.owner, record.attempts) == (State.ANSWERED, None, 0)


async def test_calls_are_bounded_over_all_turns(store):
    house = House(store, max_concurrency=2, votes=2)
    for at in range(3):
        await house.answered(f"t{at}")
    await asyncio.gather(*(house.judge.step() for _ in range(3)))
    assert house.client.most_at_once == 2
    assert len(house.client.asked) == 12


async def test_no_turn_is_judged_twice_by_two_workers(house):
    for at in range(4):
        await house.answered(f"t{at}")
    other = house.stage("judge-2")
    await asyncio.gather(*(stage.step() for stage in (house.judge, other) for _ in range(2)))
    assert len(house.client.asked) == 4 * 6


async def test_the_stage_wakes_judges_tells_how_it_is_and_stops(house):
    signals = Signals()
    running = asyncio.create_task(house.judge.run(signals))

    await house.answered("t1")
    signals.wake.set()
    await asyncio.wait_for(house.until_judged("t1"), 10)
    assert await house.statuses() == [(True, "working")]
    signals.stop.set()
    await asyncio.wait_for(running, 10)


async def test_a_summary_that_the_session_wrote_itself_is_not_what_the_person_asked(house):
    """The client wraps it in unknown words; another session's summary proves nothing."""
    asked = Message(role="user", content="Add the word pear.")
    summary = "A word is kept in note.txt, and the person wants to see the file after each change of it."
    written = Message(role="assistant", content=summary)
    wrapped = Message(role="user", content=f"Context summary:\n\n{summary}")
    conversation = Conversation(messages=(asked, Message(role="assistant", content="Yes."), wrapped))
    for session in ("ours", "theirs"):
        await house.answered(session, session=session, conversation=conversation)
    await house.store.call(
        lambda store: add(store, "beside", session="ours", kind=Kind.SIDE, message=written)
    )
    while await house.judge.step():
        continue
    seen = ["\n".join(one.content or "" for one in messages) for messages, *_ in house.client.asked]
    requests = [_between(text, "REQUEST of the person", "RESPONSE of the assistant") for text in seen]
    assert [summary in one for one in requests] == [False] * 6 + [True] * 6
    assert [asked.content in one for one in requests] == [True] * 6 + [False] * 6
    assert (await house.record("ours")).turn.conversation == conversation, "what was recorded stays"


def _between(text: str, begins: str, ends: str) -> str:
    return text.rpartition(begins)[2].partition(ends)[0]

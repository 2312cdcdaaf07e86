"""Branches of a session over HTTP: side turns, siblings, regenerations."""

from __future__ import annotations

import asyncio

from afterwit.lifecycle import Reason, State
from afterwit.turn import Kind
from tests.gateway.serving import USER, Serving

GREETED = [*USER, {"role": "assistant", "content": "Hello there."}]


def user(text: str) -> dict:
    return {"role": "user", "content": text}


async def test_a_turn_that_its_client_calls_a_side_turn_is_served_and_does_not_train(gateway: Serving):
    gateway.http.headers["x-turn-type"] = "side"
    assert (await gateway.ask()).status_code == 200
    (record,) = await gateway.records()
    assert (record.turn.kind, record.reason) == (Kind.SIDE, Reason.SIDE_TURN)


async def test_of_two_siblings_the_one_that_is_continued_is_the_conversation_and_answers_its_parent(
    gateway: Serving,
):
    await gateway.ask()
    await gateway.ask([*GREETED, user("One way.")])
    await gateway.ask([*GREETED, user("Another way.")])
    parent, one, other = await gateway.records()
    assert {one.reason, other.reason} == {Reason.UNKNOWN_BRANCH}
    await gateway.ask([*GREETED, user("Another way."), GREETED[1], user("On.")])
    parent, one, other, last = await gateway.records()
    assert (one.turn.kind, other.turn.kind, last.turn.kind) == (Kind.UNKNOWN, Kind.MAIN, Kind.MAIN)
    assert (other.state, last.turn.parent) == (State.ANSWERED, other.turn.id)
    assert parent.next_state is not None
    assert [message.content for message in parent.next_state.messages] == ["Another way."]


async def test_siblings_that_are_sampled_at_the_same_time_are_found(gateway: Serving):
    await gateway.ask()
    gateway.engine.pause_after = 1
    asked = [
        asyncio.ensure_future(gateway.ask([*GREETED, user(way)])) for way in ("One way.", "Another way.")
    ]
    await gateway.engine.paused.wait()
    gateway.engine.resume.set()
    await asyncio.gather(*asked)
    _, one, other = await gateway.records()
    assert {one.turn.kind, other.turn.kind} == {Kind.UNKNOWN}


async def test_choices_of_one_response_are_all_main_turns(gateway: Serving):
    await gateway.ask()
    await gateway.ask([*GREETED, user("Go on.")], n=3)
    records = await gateway.records()
    assert {record.turn.kind for record in records} == {Kind.MAIN}

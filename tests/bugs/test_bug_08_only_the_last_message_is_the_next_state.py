"""Only the last message was taken as the next state, and bound to the last turn: of parallel tool results one
was judged, and what followed a retry or a regeneration answered the wrong attempt."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from afterwit.lifecycle import Reason, State
from afterwit.store import Record
from tests.gateway.serving import TOOL, USER, Serving

CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "%s"}}\n</tool_call>'
SAID = {"role": "assistant", "content": "Hello there."}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answered(record: Record) -> list[tuple[str, str | None]]:
    """A turn's next state: roles and texts."""
    return [(m.role, m.content) for m in record.next_state.messages] if record.next_state else []


async def test_every_parallel_result_and_the_reply_after_them_are_one_next_state(
    gateway: Serving,
) -> None:
    gateway.says[:] = [CALL % "a.txt" + "\n" + CALL % "b.txt", "Hello there."]
    answer = await gateway.ask(tools=[TOOL])
    message = answer.json()["choices"][0]["message"]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": f"result {number}"}
        for number, call in enumerate(message["tool_calls"])
    ]
    await gateway.ask([*USER, message, *results, user("Now the other one.")], tools=[TOOL])
    first, second = await gateway.records()
    assert second.turn.parent == first.turn.id
    assert first.state is State.ANSWERED
    assert answered(first) == [("tool", "result 0"), ("tool", "result 1"), ("user", "Now the other one.")]


async def test_what_follows_a_retry_answers_the_retry(gateway: Serving) -> None:
    gateway.engine.pause_after = 2
    body = {"model": "tiny", "messages": USER}
    with pytest.raises(httpx.ReadTimeout):
        await gateway.http.post("/chat/completions", json=body, timeout=httpx.Timeout(5.0, read=0.2))
    await gateway.app.gateway.in_flight.idle()
    gateway.engine.pause_after = None
    await gateway.ask()
    await gateway.ask([*USER, SAID, user("No.")])
    left, retried, _ = await gateway.records()
    assert (left.superseded_by, answered(left)) == (retried.turn.id, [])
    assert answered(retried) == [("user", "No.")]


async def test_what_follows_a_regeneration_answers_the_one_that_was_kept(gateway: Serving) -> None:
    greeted = [*USER, SAID, user("Go on.")]
    gateway.says[:] = ["Hello there.", "One way.", "Another way.", "Done."]
    for messages in (USER, greeted, greeted):
        await gateway.ask(messages)
    await gateway.ask([*greeted, {"role": "assistant", "content": "One way."}, user("Thanks.")])
    _, kept, dropped, last = await gateway.records()
    assert last.turn.parent == kept.turn.id
    assert answered(kept) == [("user", "Thanks.")]
    assert (answered(dropped), dropped.reason) == ([], Reason.UNKNOWN_BRANCH)


async def test_conversations_that_alternate_are_answered_each_by_its_own(gateway: Serving) -> None:
    ways = [[user(f"Number {number}")] for number in range(4)]
    await asyncio.gather(*(gateway.ask(way) for way in ways))
    await asyncio.gather(*(gateway.ask([*way, SAID, user(f"No, {way[0]['content']}!")]) for way in ways))
    said = {
        record.turn.conversation.messages[0].content: answered(record)
        for record in await gateway.records()
        if len(record.turn.conversation.messages) == 1
    }
    assert said == {f"Number {n}": [("user", f"No, Number {n}!")] for n in range(4)}

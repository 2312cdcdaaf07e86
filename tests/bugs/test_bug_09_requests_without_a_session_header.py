"""Requests without a session header all fell into one session, or never trained."""

from __future__ import annotations

import asyncio
from collections import Counter

from afterwit.lifecycle import State
from afterwit.turn import Kind
from tests.gateway.serving import Serving

PEOPLE, TURNS = 6, 3


async def test_every_conversation_is_a_session_of_its_own_and_its_turns_go_to_the_judge(
    gateway: Serving,
) -> None:
    """Six people at once, three turns each, and nothing in the requests but their conversations."""
    talks = [[{"role": "user", "content": f"I am number {number}."}] for number in range(PEOPLE)]
    for turn in range(TURNS):
        answers = await asyncio.gather(*(gateway.ask(talk) for talk in talks))
        for talk, answer in zip(talks, answers, strict=True):
            talk += [answer.json()["choices"][0]["message"], {"role": "user", "content": f"No, {turn}."}]
    records = await gateway.records()
    assert {record.turn.kind for record in records} == {Kind.MAIN}
    by_session = Counter(record.turn.session for record in records)
    assert sorted(by_session.values()) == [TURNS] * PEOPLE
    whose = {(r.turn.session, r.turn.conversation.messages[0].content) for r in records}
    assert len(whose) == PEOPLE
    assert Counter(record.state for record in records) == {
        State.ANSWERED: PEOPLE * (TURNS - 1),
        State.OPEN: PEOPLE,
    }


async def test_the_same_first_words_twice_are_two_sessions(gateway: Serving) -> None:
    """The second person never saw the first one's answer."""
    answers = [await gateway.ask() for _ in range(2)]
    assert len({answer.headers["x-afterwit-session"] for answer in answers}) == 2

"""Agents that write calls out as text, and append a tool's result to the reply that called it."""

from __future__ import annotations

import pytest

from tests.binding.bindings import HI, Memory, Row, says, talk

SEARCH = 'Thought: I should look.\nAction: search\nAction Input: {"query": "capital"}'
SEEN = "\nObservation: Lima is\nthe capital."
COUNT = 'Thought: How many?\nAction: search\nAction Input: {"query": "population"}'
ANSWER = "Thought: I now know the final answer\nFinal Answer: Lima."


def crew(role: str, first: str = SEARCH) -> tuple[Row, Row, Row]:
    """Three steps of an agent that keeps its replies, with the tool's words, under this role."""
    memory, reply = Memory(), lambda text: says("assistant", text)
    one, two = says(role, SEARCH + SEEN), says(role, COUNT + "\nObservation: Ten million.")
    return (
        memory.ask(talk(HI), reply(first)),
        memory.ask(talk(HI, one), reply(COUNT)),
        memory.ask(talk(HI, one, two), reply(ANSWER)),
    )


@pytest.mark.parametrize("role", ["assistant", "user"])
def test_what_a_tool_said_is_the_next_state_of_the_reply_that_it_was_appended_to(role: str):
    first, second, third = crew(role)
    assert (second.binding.parent, third.binding.parent) == (first.id, second.id)
    assert (second.binding.rejects, third.binding.rejects) == (None, None)
    assert first.said == ("Lima is\nthe capital.",)
    assert second.said == ("Ten million.",)
    assert [message.role for message in first.next_state] == ["tool"]
    assert third.next_state == ()


def test_an_observation_that_the_model_made_up_is_replaced_by_the_tools_own():
    first, second, _ = crew("assistant", first=SEARCH + "\nObservation: It is Cusco.\n" + ANSWER)
    assert second.binding.parent == first.id
    assert first.said == ("Lima is\nthe capital.",)


@pytest.mark.parametrize("role", ["assistant", "user"])
def test_an_observation_after_another_reply_belongs_to_no_turn(role: str):
    first, second, _ = crew(role, first="Thought: I know.\nFinal Answer: Cusco.")
    assert second.binding.parent is None
    assert (first.next_state == ()) == (role == "assistant")

"""A person's conversation in a trial: one question, their reply, and a second answer if they complained."""

from __future__ import annotations

from typing import Any

import pytest

from afterwit.demo.people import AT_ONCE, Ask, ServedMessage, at_once, play
from afterwit.trial.people import Person, words
from afterwit.trial.play import Talk, conversation

LONG, SHORT = "word " * 40, "Eight minutes."


class Model:
    """Gives these answers, one after another; `asked` keeps the requests."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers, self.asked = list(answers), list[Ask]()

    def __call__(self, ask: Ask) -> ServedMessage:
        self.asked.append(Ask(messages=list(ask.messages), max_tokens=ask.max_tokens))
        return ServedMessage(message={"role": "assistant", **self.answers.pop(0)}, turn=f"{len(self.asked)}")


def talk(*said: str) -> tuple[Talk, list[Ask]]:
    model = Model(*({"content": each} for each in said))
    return play(
        model, conversation(Person(preference="short", seed=0), 3, "How do I boil an egg?")
    ), model.asked


def test_a_liked_first_answer_is_thanked_for_and_nothing_more_is_read() -> None:
    found, asked = talk(SHORT, "")
    assert (found.number, found.liked, found.second) == (3, True, None)
    assert found.reaction in words()["thanks"]["said"]
    assert [each.max_tokens for each in asked] == [None, 1]
    assert [each["role"] for each in asked[1].messages] == ["user", "assistant", "user"]


@pytest.mark.parametrize(("second", "requests"), [(SHORT, 3), (LONG, 2)])
def test_after_a_complaint_the_second_answer_is_thanked_for_if_it_is_liked(
    second: str, requests: int
) -> None:
    found, asked = talk(LONG, second, "")
    assert (found.liked, found.second, found.second_liked) == (False, second.strip(), second == SHORT)
    assert found.reaction in words()["preferences"]["short"]["said"]
    assert [each.max_tokens for each in asked] == [None, None, 1][:requests]


def test_a_call_has_a_text_and_a_result_before_the_persons_reply() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"limit": 3}'}}
    model = Model({"content": None, "tool_calls": [call]}, {"content": ""})
    found = play(model, conversation(Person(preference="limit", seed=0), 0, "Search for eggs."))
    assert (found.liked, found.answer) == (True, 'search {"limit": 3}')
    _, called, result, _ = model.asked[1].messages
    assert (called["content"], result["role"], result["tool_call_id"]) == ("", "tool", "c1")


def test_results_of_work_at_once_are_in_order_and_each_is_counted() -> None:
    done: list[tuple[int, int]] = []
    numbers = range(3 * AT_ONCE)
    assert at_once(lambda number: -number, numbers, lambda *at: done.append(at)) == [
        -each for each in numbers
    ]
    assert sorted(done) == [(each + 1, len(numbers)) for each in numbers]

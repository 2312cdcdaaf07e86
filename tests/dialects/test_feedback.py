"""Feedback as it is sent: the turn that it names, and the reward that a number is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.errors import RequestError
from afterwit.gateway.feedback import feedback_body, parse_feedback
from afterwit.lifecycle import State
from afterwit.turn import turn_id
from afterwit.verdict import Feedback


@given(st.floats(0, 2**40), st.binary(min_size=9, max_size=9), st.integers(0, 127))
def test_a_choice_names_the_turn_that_many_ids_after_the_first(now, entropy, choice):
    first, wanted = (turn_id(now, entropy + bytes([index])) for index in (0, choice))
    named = {"response_id": "chatcmpl-" + first, "choice": choice, "thumb": "up"}
    assert parse_feedback(named, reward_from=0.5)[0] == wanted
    assert parse_feedback({"turn": first, "text": "x"}, reward_from=0.5)[0] == first


@pytest.mark.parametrize(
    ("number", "reward"),
    [(1, 1), (0.5, 1), (0.49, 0), (0, 0), (-0.49, 0), (-0.5, -1), (-1.0, -1)],
)
def test_a_number_is_a_reward_from_a_size_on_and_neutral_below_it(number, reward):
    body = {"turn": turn_id(0, b"123456789" + b"\0"), "reward": number}
    assert parse_feedback(body, reward_from=0.5)[1] == Feedback(reward=reward)


@pytest.mark.parametrize("name", ["text", "hint", "correction"])
@pytest.mark.parametrize("words", [7, ["x"], " \u200b\u2060\n"])
def test_words_are_a_text_of_which_something_is_seen(name, words):
    with pytest.raises(RequestError, match=f"{name} must be text of more than white space") as refused:
        parse_feedback({"turn": turn_id(0, bytes(10)), name: words}, reward_from=0.5)
    assert (refused.value.status, refused.value.param) == (400, name)


def test_the_response_to_feedback_says_whether_the_turn_trains():
    said = [
        feedback_body("t", Feedback(text="No."), state, trains=trains)["message"] for state, trains in CASES
    ]
    assert said[0].startswith("Recorded; the turn will be judged")
    assert "has trained already" in said[1]
    assert "does not train" in said[2]


CASES = ((State.ANSWERED, True), (State.TRAINED, False), (State.SKIPPED, False))

"""Feedback as it is sent: which turn it names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from afterwit.gateway.feedback import feedback_body, parse_feedback
from afterwit.lifecycle import State
from afterwit.turn import turn_id


@given(st.floats(0, 2**40), st.binary(min_size=9, max_size=9), st.integers(0, 127))
def test_a_choice_names_the_turn_that_many_ids_after_the_first(now, entropy, choice):
    first, wanted = (turn_id(now, entropy + bytes([index])) for index in (0, choice))
    turn, _ = parse_feedback({"response_id": "chatcmpl-" + first, "choice": choice, "thumb": "up"})
    assert turn == wanted
    assert parse_feedback({"turn": first, "text": "x"})[0] == first


def test_the_response_to_feedback_says_whether_the_turn_trains():
    said = [feedback_body("t", state, trains=trains)["message"] for state, trains in CASES]
    assert said[0].startswith("Recorded; the turn will be judged")
    assert "has trained already" in said[1]
    assert "does not train" in said[2]


CASES = ((State.ANSWERED, True), (State.TRAINED, False), (State.SKIPPED, False))

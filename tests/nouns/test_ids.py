"""Ids that survive what clients do to them and lead back to their turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.turn import (
    MOST_CALLS,
    call_id,
    calls_in,
    choice_turn,
    plain_id,
    turn_id,
    turn_of_call,
    turn_of_response,
    with_prefix,
)

entropy = st.binary(min_size=10, max_size=10)
times = st.floats(min_value=0, max_value=4e9)


@given(now=times, entropy=entropy, index=st.integers(min_value=0, max_value=MOST_CALLS - 1))
def test_a_call_id_leads_back_to_its_turn_whatever_a_client_drops(now, entropy, index):
    turn = turn_id(now, entropy)
    call = call_id(turn, index)
    assert turn.isalnum()
    assert turn == turn.lower()
    assert call.isalnum()
    assert len(call) <= 40, "the longest id that OpenAI's own API takes"
    for told in (call, call.upper(), "call_" + call[4:], f" {call}-", "toolu" + call[4:]):
        assert turn_of_call(told) == turn
        assert calls_in(f"(id={told.strip(' -')}, done)") == [told.strip(" -").lower()]
        assert calls_in(f"({told.strip(' -')}x or x{told.strip(' -')})") == []
    for prefix in ("", "chatcmpl-", "resp_", "msg_"):
        assert turn_of_response(prefix + turn) == turn


@given(now=times, entropy=entropy, index=st.integers(min_value=0, max_value=15))
def test_the_turns_of_a_response_are_numbered_on_from_its_first(now, entropy, index):
    entropy = entropy[:-1] + b"\0"
    assert choice_turn(turn_id(now, entropy), index) == turn_id(now, entropy[:-1] + bytes([index]))


@given(one=times, other=times, entropy=entropy)
def test_turn_ids_sort_by_time(one, other, entropy):
    if int(one * 1000) < int(other * 1000):
        assert turn_id(one, entropy) < turn_id(other, entropy)


@given(entropies=st.lists(entropy, min_size=2, max_size=2, unique=True), now=times)
def test_other_entropy_is_another_id(entropies, now):
    assert turn_id(now, entropies[0]) != turn_id(now, entropies[1])


@given(text=st.text())
def test_what_we_did_not_issue_is_nobodys(text):
    assert turn_of_call(text) is None


@pytest.mark.parametrize("theirs", ["call_a883db2dc477", "toolu_e55ba3b4e26e431b", "", "call"])
def test_other_peoples_ids_are_nobodys(theirs):
    assert turn_of_call(theirs) is None


@given(now=times, entropy=entropy)
def test_an_id_that_a_client_put_into_one_of_its_own_is_still_ours(now, entropy):
    turn = turn_id(now, entropy)
    call = call_id(turn, 1)
    for told in (
        f"call_{call}_fc_{turn[:12]}_aeb74d2422",
        f"call_{call[4:]}|fc_{turn}0",
        f"x:{call.upper()}",
    ):
        assert turn_of_call(told) == turn
        assert plain_id(told) == call
        assert with_prefix("call", told) == call
    for other in (f"x{call}", f"{call}0", call[:-1]):
        assert turn_of_call(other) is None
        assert plain_id(other) == with_prefix("call", other) == other


def test_an_id_of_ours_takes_the_form_of_any_dialect_and_others_stay():
    call = call_id(turn_id(1.0, b"0123456789"), 3)
    for told in (call, "toolu" + call[4:], "toolu_" + call[4:].upper()):
        assert with_prefix("call", told) == call
    for theirs in ("toolu_01A09q90qw90lq917835lq9", "Call_x", ""):
        assert with_prefix("call", theirs) == theirs


def test_too_little_entropy_is_refused():
    with pytest.raises(ValueError, match="10 bytes of entropy, not 3"):
        turn_id(1.0, b"abc")
    with pytest.raises(ValueError, match="does not fit"):
        call_id("x", MOST_CALLS)

"""New turns, and later changes to them."""

from __future__ import annotations

import pytest

from afterwit.errors import StoreError, TurnNotFound
from afterwit.lifecycle import Reason, State
from afterwit.store import Store
from afterwit.turn import Basis, Conversation, Finish, Kind, Message, Sampled, Sampling, ToolCall
from afterwit.verdict import Feedback, NextState
from tests.store.examples import HINTED, NO, THANKS, a_turn, a_version, add, add_judged


def state(store: Store, turn: str) -> State:
    return store.turn(turn).state


def test_a_turn_comes_back_as_it_was_stored(store: Store) -> None:
    call = ToolCall(id="call1", name="open", arguments='{"path": "ä"}')
    turn = a_turn(
        "whole",
        parent="before",
        conversation=Conversation(
            messages=(
                Message(role="system", content="Be brief."),
                Message(role="assistant", content=None, reasoning="Hm.", tool_calls=(call,)),
                Message(role="tool", content="ok", tool_call_id="call1", name="open"),
            ),
            tools=({"type": "function", "function": {"name": "open", "b": 1, "a": 2}},),
            template_args={"enable_thinking": False},
        ),
        sampling=Sampling(max_tokens=9, seed=3, stop=("\n",), stop_ids=(7,), logit_bias=((5, -1.5),)),
        sampled=Sampled(
            ids=(9, 151_935),
            logprobs=(-0.125, -3.5),
            versions=(3, 4),
            forced=(True, False),
            basis=Basis.RAW,
            cache_version=2,
        ),
        message=Message(role="assistant", content=None, tool_calls=(call,)),
        finish=Finish.TOOL_CALLS,
        teaches=False,
    )
    reason = Reason.KEY_DOES_NOT_TEACH
    hashes = {"prompt_hash": b"p", "full_hash": b"f"}
    store.add_turn(turn, **hashes, depth=3, full_depth=4, delivered=False, reason=reason, now=5.0)

    record = store.turn("whole")
    assert record.turn == turn
    assert list(record.turn.conversation.tools[0]["function"]) == ["name", "b", "a"]
    assert (record.state, record.reason, record.delivered) == (State.SKIPPED, reason, False)
    assert record.next_state is None
    assert record.verdict is None


def test_an_id_is_taken_once(store: Store) -> None:
    add(store, "a")
    with pytest.raises(StoreError):
        add(store, "a")
    assert store.counts().states == {State.OPEN: 1}


def test_a_retry_is_stored_with_what_it_replaces(store: Store) -> None:
    add(store, "cut off")
    hashes = {"prompt_hash": b"p", "full_hash": b"f"}
    common = {"depth": 3, "full_depth": 4, "delivered": True, "reason": None, "now": 1.0}
    store.add_turn(a_turn("next"), **hashes, **common, supersedes="cut off")
    assert store.turn("cut off").reason is Reason.SUPERSEDED
    assert store.turn("cut off").superseded_by == "next"


def test_a_turn_whose_retried_turn_is_unknown_is_not_stored(store: Store) -> None:
    hashes = {"prompt_hash": b"p", "full_hash": b"f"}
    common = {"depth": 3, "full_depth": 4, "delivered": True, "reason": None, "now": 1.0}
    with pytest.raises(TurnNotFound, match="there is no turn gone"):
        store.add_turn(a_turn("next"), **hashes, **common, supersedes="gone")
    with pytest.raises(TurnNotFound):
        store.turn("next")


def test_an_open_turn_is_answered_by_what_follows_it(store: Store) -> None:
    add(store, "a")
    assert store.answer("a", NO, answered_by="b", now=1.0) is State.ANSWERED
    assert store.turn("a").next_state == NextState(messages=NO)


def test_the_same_answer_again_does_not_have_a_turn_judged_again(store: Store) -> None:
    add_judged(store, "a")
    assert store.answer("a", NO, answered_by="retry", now=9.0) is State.JUDGED
    assert store.answer("a", NO + THANKS, answered_by="next", now=9.0) is State.ANSWERED


def test_a_late_reply_reopens_a_turn_that_nothing_answered(store: Store) -> None:
    add(store, "a", now=0.0)
    add(store, "b", now=50.0)
    assert store.expire_open(40.0, now=100.0) == 1
    assert store.turn("a").reason is Reason.NO_NEXT_STATE
    assert state(store, "b") is State.OPEN
    assert store.answer("a", NO, answered_by="late", now=101.0) is State.ANSWERED
    assert store.turn("a").reason is None


@pytest.mark.parametrize(
    "reason", [Reason.SIDE_TURN, Reason.PENALTIES, Reason.CLIENT_LEFT, Reason.SUPERSEDED]
)
def test_an_answer_does_not_make_an_untrainable_turn_train(store: Store, reason: Reason) -> None:
    add(store, "a", reason=reason)
    assert store.answer("a", NO, answered_by="b", now=1.0) is State.SKIPPED
    assert store.turn("a").next_state == NextState(messages=NO)


def test_an_answer_to_a_trained_turn_is_recorded_only(store: Store) -> None:
    add_judged(store, "a")
    store.commit_version(a_version(1, ["a"]), now=1.0)
    assert store.answer("a", THANKS, answered_by="b", now=2.0) is State.TRAINED
    assert store.turn("a").next_state == NextState(messages=THANKS)


def test_feedback_before_training_has_the_turn_judged_anew_and_the_newest_counts(store: Store) -> None:
    add_judged(store, "a")
    assert store.feedback("a", Feedback(reward=1), now=1.0)[1]
    outcome = store.feedback("a", Feedback(reward=-1, text="wrong file"), now=2.0)
    assert outcome == (State.ANSWERED, True)
    assert store.turn("a").next_state == NextState(
        messages=NO, feedback=Feedback(reward=-1, text="wrong file")
    )


def test_the_newest_reward_words_hint_and_correction_count_whatever_came_between(store: Store) -> None:
    add(store, "a")
    for given in (
        Feedback(reward=-1, text="wrong file"),
        Feedback(hint="Read the file first."),
        Feedback(correction="It is in b.txt."),
        Feedback(hint="Read b.txt first."),
    ):
        store.feedback("a", given, now=1.0)
    assert store.turn("a").next_state == NextState(
        feedback=Feedback(
            reward=-1, text="wrong file", hint="Read b.txt first.", correction="It is in b.txt."
        )
    )


def test_feedback_after_training_is_recorded_and_says_that_it_does_not_train(store: Store) -> None:
    add_judged(store, "a")
    store.commit_version(a_version(1, ["a"]), now=1.0)
    outcome = store.feedback("a", Feedback(reward=-1), now=2.0)
    assert outcome == (State.TRAINED, False)


def test_feedback_alone_answers_a_turn(store: Store) -> None:
    add(store, "a")
    assert store.feedback("a", Feedback(text="good"), now=1.0)[0] is State.ANSWERED
    assert store.turn("a").next_state == NextState(feedback=Feedback(text="good"))


def test_feedback_during_an_update_waits_for_how_the_update_ends(store: Store) -> None:
    for name in ("trained", "released", "abandoned"):
        add_judged(store, name)
    store.claim("learn", owner="learner", limit=3, lease_s=10, now=0.0)
    for name in ("trained", "released", "abandoned"):
        assert not store.feedback(name, Feedback(reward=1), now=1.0)[1]
    store.commit_version(a_version(1, ["trained"]), now=2.0)
    store.release(["released"], owner="learner", now=2.0)
    assert state(store, "trained") is State.TRAINED
    assert state(store, "released") is State.ANSWERED
    assert store.claim("learn", owner="next", limit=3, lease_s=10, now=99.0) == []
    assert state(store, "abandoned") is State.ANSWERED


def test_feedback_on_an_unknown_turn_is_refused(store: Store) -> None:
    with pytest.raises(TurnNotFound, match="there is no turn ghost"):
        store.feedback("ghost", Feedback(reward=1), now=0.0)


def test_a_turn_found_off_the_main_line_is_skipped_and_found_on_it_is_judged(store: Store) -> None:
    add(store, "a")
    assert store.set_kind("a", Kind.UNKNOWN, now=1.0) is State.SKIPPED
    assert store.turn("a").reason is Reason.UNKNOWN_BRANCH
    assert store.answer("a", NO, answered_by="b", now=2.0) is State.SKIPPED
    assert store.set_kind("a", Kind.MAIN, now=3.0) is State.ANSWERED
    assert store.turn("a").turn.kind is Kind.MAIN


def test_a_turn_known_to_be_main_before_its_answer_is_judged_too(store: Store) -> None:
    add(store, "a", reason=Reason.UNKNOWN_BRANCH, kind=Kind.UNKNOWN)
    assert store.set_kind("a", Kind.MAIN, now=1.0) is State.SKIPPED
    assert store.answer("a", NO, answered_by="b", now=2.0) is State.ANSWERED


def test_a_turn_that_was_no_side_turn_is_judged_in_a_session_of_its_own(store: Store) -> None:
    add(store, "a", reason=Reason.SIDE_TURN, kind=Kind.SIDE, session="theirs")
    assert store.answer("a", NO, answered_by="b", now=1.0) is State.SKIPPED
    assert store.set_kind("a", Kind.MAIN, session="a", now=2.0) is State.ANSWERED
    found = store.turn("a").turn
    assert (found.kind, found.session) == (Kind.MAIN, "a")


def test_a_superseded_turn_that_trained_stays_trained(store: Store) -> None:
    add_judged(store, "a")
    store.commit_version(a_version(1, ["a"]), now=1.0)
    store.supersede("a", "b", now=2.0)
    assert (state(store, "a"), store.turn("a").superseded_by) == (State.TRAINED, "b")


def test_delivery_is_recorded(store: Store) -> None:
    hashes = {"prompt_hash": b"p", "full_hash": b"f"}
    store.add_turn(a_turn("a"), **hashes, depth=1, full_depth=2, delivered=False, reason=None, now=0.0)
    store.delivered(["a"])
    assert store.turn("a").delivered


def test_a_new_answer_while_the_judge_is_at_work_makes_its_verdict_void(store: Store) -> None:
    add(store, "a")
    store.answer("a", NO, answered_by=None, now=0.0)
    store.claim("judge", owner="judge", limit=1, lease_s=60, now=0.0)
    store.answer("a", NO + THANKS, answered_by=None, now=1.0)
    assert not store.judged("a", HINTED, rl=True, opd=True, reason=None, owner="judge", now=2.0)
    (again,) = store.claim("judge", owner="judge", limit=1, lease_s=60, now=2.0)
    assert again.next_state == NextState(messages=NO + THANKS)
    assert store.judged("a", HINTED, rl=True, opd=True, reason=None, owner="judge", now=3.0)

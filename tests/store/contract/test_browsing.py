"""Lists without conversations."""

from __future__ import annotations

from afterwit.lifecycle import Reason, State
from afterwit.store import Filter, Store
from afterwit.turn import Conversation, Kind, Message
from afterwit.verdict import Feedback, Question, Source, Verdict
from tests.store.examples import HINTED, PRAISED, a_version, add, add_judged


def asked(words: str) -> Conversation:
    said = Message(role="user", content=words)
    return Conversation(messages=(Message(role="system", content="Work."), said))


def test_a_line_says_of_a_turn_what_its_record_says(store: Store) -> None:
    add_judged(store, "t1", HINTED, now=5.0)
    store.commit_version(a_version(1, ["t1"]), now=6.0)
    add(store, "t2", reason=Reason.SIDE_TURN, kind=Kind.SIDE, now=7.0)
    lines = store.turn_lines()
    assert [line.turn for line in lines] == ["t2", "t1"]
    for line in lines:
        record = store.turn(line.turn)
        turn, verdict = record.turn, record.verdict
        assert (line.seq, line.session, line.scope) == (record.seq, turn.session, turn.scope)
        assert (line.state, line.reason, line.kind) == (record.state, record.reason, turn.kind)
        assert (line.message, line.created, line.imported) == (turn.message, turn.created, False)
        assert line.reward == (None if verdict is None else verdict.reward)
        assert line.hints == (() if verdict is None else verdict.hints)
        assert line.trained_in == record.trained_in


def test_lines_are_filtered_and_go_on_behind_the_last_one(store: Store) -> None:
    for number in range(7):
        add(store, f"t{number}", session=f"s{number % 2}")
    seen, before = [], None
    while page := store.turn_lines(Filter(session="s0"), before=before, limit=2):
        seen += [line.turn for line in page]
        before = page[-1].seq
    assert seen == ["t6", "t4", "t2", "t0"]
    assert store.turn_lines(Filter(state=State.TRAINED)) == []


def test_a_session_is_listed_once_by_its_newest_main_turn_with_what_was_asked_first(store: Store) -> None:
    add_judged(store, "a1", HINTED, session="a", conversation=asked("Open the garden."), now=1.0)
    add_judged(store, "b1", PRAISED, session="b", conversation=asked("Close it."), now=2.0)
    add(store, "a2", session="a", conversation=asked("And now?"), now=3.0)
    add(store, "b2", session="b", reason=Reason.SIDE_TURN, kind=Kind.SIDE, now=4.0)
    first, second = store.session_lines()
    assert (first.session, first.asked, first.turns, first.bad, first.hinted) == (
        "a",
        "Open the garden.",
        2,
        1,
        1,
    )
    assert (first.begun, first.newest) == (1.0, 3.0)
    assert (second.session, second.turns, second.good, second.bad) == ("b", 1, 1, 0)
    assert [line.session for line in store.session_lines(limit=1)] == ["a"]
    assert [line.session for line in store.session_lines(before=first.seq)] == ["b"]


def test_a_session_whose_content_was_removed_is_still_counted(store: Store) -> None:
    add(store, "old", reason=Reason.NO_NEXT_STATE, now=1.0)
    store.prune(now=100.0, max_age_s=1.0, max_bytes=None)
    assert store.turn_lines() == []
    assert [line.asked for line in store.session_lines()] in ([], [None])


def test_the_newest_judged_turns_come_in_the_order_of_arrival(store: Store) -> None:
    for number in range(6):
        verdict = Verdict(reward=number % 2 * 2 - 1, source=Source.VOTES, hints=())
        add_judged(store, f"t{number}", verdict, now=float(number))
    assert [each.at for each in store.judged_turns(limit=3)] == [3.0, 4.0, 5.0]
    assert [each.reward for each in store.judged_turns(limit=9)] == [-1, 1, -1, 1, -1, 1]


def test_sources_are_counted_over_the_newest_turns(store: Store) -> None:
    add_judged(store, "t1", HINTED, scope="ann/opencode")
    add_judged(store, "t2", PRAISED, scope="bob/openclaw")
    add(store, "t3", scope="bob/another")
    found = store.source_lines(newest=10)
    assert [(line.source, line.turns, line.good, line.bad, line.waiting) for line in found] == [
        ("bob", 2, 1, 0, 1),
        ("ann", 1, 0, 1, 1),
    ]
    assert [line.source for line in store.source_lines(newest=2)] == ["bob"]


def test_the_newest_versions_are_those_of_the_whole_list(store: Store) -> None:
    for number in range(1, 5):
        add_judged(store, f"t{number}")
        store.commit_version(a_version(number, [f"t{number}"], metrics={"loss": 1.0 / number}), now=1.0)
    whole = store.versions()
    assert store.newest_versions(limit=9) == whole[::-1]
    assert store.newest_versions(before=3, limit=1) == [whole[1]]


def test_judged_turns_come_with_their_votes_and_the_newest_feedback(store: Store) -> None:
    add_judged(store, "t1", HINTED, session="a", now=1.0)
    add_judged(store, "t2", PRAISED, session="b", now=2.0)
    store.feedback("t2", Feedback(reward=1), now=3.0)
    store.feedback("t2", Feedback(reward=-1), now=4.0)
    first, second = store.judged_turns(limit=9)
    assert (first.turn, first.session, first.reward, first.source, first.hinted, first.feedback) == (
        "t1",
        "a",
        -1,
        Source.VOTES,
        True,
        None,
    )
    assert first.votes == ((Question.EVALUATION, -1), (Question.HINT, 1), (Question.HINT, None))
    assert (second.seq > first.seq, second.votes, second.feedback) == (True, (), -1)
    assert [each.turn for each in store.judged_turns(limit=1)] == ["t2"]

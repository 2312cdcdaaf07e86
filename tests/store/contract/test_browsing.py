"""Lists without conversations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from afterwit.lifecycle import Reason, State
from afterwit.store import Filter, Store
from afterwit.store.browsing import Found
from afterwit.store.rows import content_columns, last_said
from afterwit.turn import Conversation, Kind, Message
from afterwit.verdict import Feedback, Question, Source, Verdict
from tests.store.examples import HINTED, PRAISED, a_turn, a_version, add, add_judged


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


def hits(found: Found) -> dict[str, str]:
    return {hit.line.turn: hit.text for hit in found.hits}


def test_words_are_found_in_what_people_said_in_answers_and_in_feedback_of_the_turn_that_has_them(
    store: Store,
) -> None:
    opening = asked('Draw "Böden" and a C:\\garden.\nNo user role content.')
    answer = Message(role="assistant", content="The GARDEN is drawn.")
    add(store, "t1", conversation=opening, message=answer, now=1.0)
    onward = Conversation(messages=(*opening.messages, answer, Message(role="user", content="Now a tree.")))
    add(store, "t2", parent="t1", conversation=onward, now=2.0)
    add(store, "side", kind=Kind.SIDE, conversation=asked("A garden tree."), now=3.0)
    store.feedback("t2", Feedback(reward=-1, hint="Ask which tree, oak or fir."), now=4.0)
    for words, turns in {
        "garden": ["t1"],  # of the answer, and not again of the turn after it
        "GARDEN draw": ["t1"],
        'bÖden "': ["t1"],
        "c:\\garden. no": ["t1"],
        "tree": ["t2"],
        "oak": ["t2"],
        "work": [],  # the instructions are not searched
        "messages": [],  # nor is the form in which they are stored
        "user": ["t1"],
        "garden tree": [],
    }.items():
        found = store.search(words, limit=9)
        assert (list(hits(found)), found.before, found.read) == (turns, None, 2), words
    assert hits(store.search("bÖden", limit=9))["t1"].startswith('Draw "Böden" and')
    assert hits(store.search("fir", limit=9))["t2"] == "Ask which tree, oak or fir."


def test_a_search_reads_so_many_turns_and_goes_on_before_them(store: Store) -> None:
    for at in range(18):
        words = f"The sea, {at}." if at % 6 == 0 else "Nothing."
        add(store, f"t{at:02}", scope=f"key/{at % 2}", conversation=asked(words), now=float(at))
    first = store.search("sea", limit=9, most=8)
    assert (list(hits(first)), first.read, first.since) == (["t12"], 8, 10.0)
    second = store.search("sea", before=first.before, limit=9, most=8)
    assert (list(hits(second)), second.read, second.since) == (["t06"], 8, 2.0)
    third = store.search("sea", before=second.before, limit=9, most=8)
    assert (list(hits(third)), third.read, third.before) == (["t00"], 2, None)
    one = store.search("sea", limit=1)
    assert list(hits(store.search("sea", before=one.before, limit=1))) == ["t06"]
    assert list(hits(store.search("sea", scope="key/1", limit=9))) == []
    assert store.clients(limit=9) == ["key/0", "key/1"]
    assert store.clients(limit=1) == ["key/0"]
    assert [line.session for line in store.session_lines(scope="key/2")] == []
    assert len(store.turn_lines(Filter(scope="key/1"))) == 9


def test_a_search_of_nothing_stored(store: Store) -> None:
    assert store.search("sea", limit=9) == Found(hits=(), read=0, since=None, before=None)
    assert store.clients(limit=9) == []


@given(
    st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), st.none() | st.text(max_size=9))),
    st.integers(0, 200),
)
def test_what_was_said_last_is_read_from_a_conversation_as_it_is_stored_and_from_its_end(parts, cut) -> None:
    said = tuple(Message(role=role, content=text) for role, text in parts)
    messages = (Message(role="user", content="Open it."), *said)
    stored = content_columns(a_turn("t", conversation=Conversation(messages=messages)))["conversation"]
    after = [at for at, each in enumerate(messages, 1) if each.role == "assistant"]
    last = [each.content for each in messages[after[-1] if after else 0 :] if each.role == "user"]
    assert last_said(stored) == [text for text in last if text is not None]
    whole = last_said(stored)
    assert last_said(stored[cut:]) in [whole[at:] for at in range(len(whole) + 1)]

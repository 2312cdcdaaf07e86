"""The store's lookups for binding."""

from __future__ import annotations

from collections.abc import Sequence

from afterwit.binding.bind import Binding, bind
from afterwit.binding.evidence import Recent
from afterwit.binding.request import IncomingRequest, Shape, client_session_of, read_request
from afterwit.lifecycle import Reason
from afterwit.store import Store
from afterwit.turn import Conversation, Kind, Message
from tests.store.examples import NO, a_turn, add

SCOPE = "key/agent"


def hashed(store: Store, id: str, prompt: bytes, full: bytes, depth: int) -> None:
    """Add a turn with these hashes; an empty response leaves its prompt's hash."""
    depths = {"depth": depth, "full_depth": depth + (prompt != full)}
    hashes = {"prompt_hash": prompt, "full_hash": full}
    store.add_turn(a_turn(id), **hashes, **depths, delivered=True, reason=None, now=0.0)


def names(
    store: Store, hashes: Sequence[bytes], turn_ids: Sequence[str] = (), scope: str = SCOPE
) -> set[str]:
    return {candidate.turn for candidate in store.candidates(scope, hashes, turn_ids)}


def test_a_turn_is_found_by_its_prompt_by_its_full_hash_and_by_its_id(store: Store) -> None:
    hashed(store, "a", b"pa", b"fa", 1)
    hashed(store, "b", b"pb", b"fb", 1)
    assert names(store, [b"x", b"pa"]) == {"a"}
    assert names(store, [b"fb", b"y"]) == {"b"}
    assert names(store, [b"x"], ["a", "ghost"]) == {"a"}
    assert names(store, []) == set()


def test_another_scopes_turns_are_never_found(store: Store) -> None:
    hashed(store, "a", b"pa", b"fa", 1)
    add(store, "side", kind=Kind.SIDE)
    assert names(store, [b"pa", b"fa"], ["a"], scope="other/agent") == set()


def test_a_deep_conversation_finds_its_parent(store: Store) -> None:
    hashes = [f"h{depth}".encode() for depth in range(300)]
    for depth in range(1, 299, 2):
        hashed(store, f"t{depth}", hashes[depth - 1], hashes[depth], depth)
    assert "t297" in names(store, hashes)


def test_an_old_parent_of_a_long_request_is_found(store: Store) -> None:
    hashes = [f"h{depth}".encode() for depth in range(300)]
    hashed(store, "old", hashes[0], hashes[1], 1)
    hashed(store, "silent", hashes[280], hashes[280], 281)
    assert {"old", "silent"} <= names(store, hashes)


def test_recent_side_replies_come_with_their_text_and_the_newest_first(store: Store) -> None:
    for number in range(5):
        reply = Message(role="assistant", content=f"summary {number} " + 80 * "-")
        add(store, f"s{number}", kind=Kind.SIDE, reason=Reason.SIDE_TURN, message=reply)
    add(
        store,
        "title",
        kind=Kind.SIDE,
        reason=Reason.SIDE_TURN,
        message=Message(role="assistant", content="T"),
    )
    found = store.candidates(SCOPE, [], [], side_limit=2)
    assert {(c.turn, (c.reply or "")[:9]) for c in found} == {("s3", "summary 3"), ("s4", "summary 4")}


def test_a_candidate_knows_how_its_request_was_made(store: Store) -> None:
    shape = Shape(tools=frozenset({"read", "write"}), streamed=True)
    hashes = {"prompt_hash": b"p", "full_hash": b"f"}
    common = {"depth": 1, "full_depth": 2, "delivered": True, "reason": None, "now": 0.0}
    store.add_turn(a_turn("a"), **hashes, **common, shape=shape)
    (found,) = store.candidates(SCOPE, [b"p"], [])
    assert found.shape == shape


def test_the_newest_main_line_turn_of_a_named_session_is_found(store: Store) -> None:
    common = {"depth": 1, "full_depth": 2, "delivered": True, "reason": None, "now": 0.0}
    for name, kind in (("old", Kind.MAIN), ("new", Kind.MAIN), ("title", Kind.SIDE)):
        hashes = {"prompt_hash": f"p{name}".encode(), "full_hash": f"f{name}".encode()}
        store.add_turn(a_turn(name, kind=kind), **hashes, **common, client_session=b"theirs")
    found = store.candidates(SCOPE, [], [], client_session=b"theirs", side_limit=0)
    assert [candidate.turn for candidate in found] == ["new"]
    assert store.candidates(SCOPE, [], [], client_session=b"another", side_limit=0) == []


def test_nothing_of_another_session_of_the_client_is_found(store: Store) -> None:
    long = Message(role="assistant", content="summary " + 80 * "-")
    common = {"depth": 1, "full_depth": 2, "delivered": True, "reason": None, "now": 0.0}
    for name, kind in (("main", Kind.MAIN), ("side", Kind.SIDE)):
        for session in (None, b"theirs", b"another"):
            id = f"{name} {session}"
            hashes = {"prompt_hash": id.encode(), "full_hash": b"f" + id.encode()}
            store.add_turn(a_turn(id, kind=kind, message=long), **hashes, **common, client_session=session)
    named = [f"main {session}" for session in (None, b"theirs", b"another")]

    def found(session: bytes | None) -> set[str]:
        return {one.turn for one in store.candidates(SCOPE, [], named, client_session=session)}

    sides = {named_one.replace("main", "side") for named_one in named}
    assert found(b"theirs") == {"main None", f"main {b'theirs'}", f"side {b'theirs'}"}
    assert found(None) == {*named, *sides}


def test_of_turns_with_an_equal_hash_only_the_newest_are_found(store: Store) -> None:
    for number in range(6):
        hashed(store, f"t{number}", b"p", b"f", 1)
    hashed(store, "other", b"other p", b"other f", 1)
    for hashes in ([b"p"], [b"f"], [b"p", b"f"]):
        found = store.candidates(SCOPE, [*hashes, b"other f"], [], equal_limit=2)
        assert {one.turn for one in found} == {"t4", "t5", "other"}


def test_children_are_counted_without_side_turns(store: Store) -> None:
    add(store, "a")
    add(store, "b", parent="a")
    add(store, "c", parent="a", kind=Kind.SIDE)
    (found,) = store.candidates(SCOPE, [b"full a"], [], side_limit=0)
    assert found.children == 1
    sibling = store.candidate("a")
    assert sibling is not None
    assert (sibling.children, sibling.answered) == (1, False)
    assert store.candidate("ghost") is None


def test_of_many_branches_only_the_newest_come_side_turns_not_among_them(store: Store) -> None:
    add(store, "a")
    for number in range(5):
        add(store, f"b{number}", parent="a")
    add(store, "s", parent="a", kind=Kind.SIDE)
    assert [child.turn for child in store.children("a", limit=2)] == ["b3", "b4"]
    assert len(store.children("a")) == 5


def test_branches_are_a_turns_children_without_retried_and_abandoned_ones(store: Store) -> None:
    add(store, "a")
    for name in ("b", "c", "d", "e"):
        add(store, name, parent="a", reason=Reason.CLIENT_LEFT if name == "e" else None)
    store.supersede("c", "d", now=1.0)
    store.answer("b", NO, answered_by=None, now=1.0)
    store.set_kind("d", Kind.UNKNOWN, now=1.0)
    found = [(child.turn, child.kind, child.children, child.answered) for child in store.children("a")]
    assert found == [("b", Kind.MAIN, 0, True), ("d", Kind.UNKNOWN, 0, False)]


def asked(id: str, *messages: Message) -> IncomingRequest:
    conversation = Conversation(messages=messages)
    client = client_session_of({}, {})
    return read_request(turn=id, scope=SCOPE, conversation=conversation, client=client, streamed=False)


def served(store: Store, incoming: IncomingRequest, reply: Message) -> Binding:
    """Bind a request to what the store has, and store its turn."""
    binding = bind(incoming, store.candidates(SCOPE, incoming.hashes, tuple(incoming.mentions)))
    full_hash, full_depth = incoming.full(reply)
    turn = a_turn(incoming.turn, session=binding.session, parent=binding.parent, message=reply)
    store.add_turn(
        turn,
        prompt_hash=incoming.prompt_hash,
        full_hash=full_hash,
        depth=incoming.depth,
        full_depth=full_depth,
        delivered=True,
        reason=None,
        now=0.0,
        shape=incoming.shape,
    )
    return binding


def test_the_newest_main_turn_under_the_clients_own_id_comes_with_the_candidates(store: Store) -> None:
    hashes = {"prompt_hash": b"p", "full_hash": b"f", "depth": 1, "full_depth": 2}
    for name, kind, home in (("a", Kind.MAIN, b"h"), ("b", Kind.MAIN, b"h"), ("c", Kind.MAIN, b"other")):
        store.add_turn(
            a_turn(name, kind=kind), **hashes, delivered=True, reason=None, client_session=home, now=0.0
        )
    found = store.candidates(SCOPE, [], [], client_session=b"h")
    assert [(one.turn, one.newest) for one in found] == [("b", True)]
    assert store.candidates(SCOPE, [], [], client_session=b"none") == []
    assert store.candidates("other/agent", [], [], client_session=b"h") == []
    assert {one.turn: one.newest for one in store.candidates(SCOPE, [b"p"], [], client_session=b"h")} == {
        "a": False,
        "b": True,
        "c": False,
    }


def test_a_conversation_of_many_turns_binds_each_to_the_one_before(store: Store) -> None:
    said: list[Message] = []
    for number in range(40):
        said.append(Message(role="user", content=f"question {number}"))
        reply = Message(role="assistant", content=f"answer {number}")
        binding = served(store, asked(f"t{number}", *said), reply)
        assert binding.session == "t0"
        assert binding.parent == (f"t{number - 1}" if number else None)
        stored = store.candidate(f"t{number}")
        assert stored is not None
        assert stored.full_depth == 2 * number + 2
        said.append(reply)


def test_replies_are_those_of_a_sessions_turns_without_its_side_turns(store: Store) -> None:
    for number, kind in enumerate((Kind.MAIN, Kind.SIDE, Kind.UNKNOWN)):
        reply = Message(role="assistant", content=f"<think>hm</think>  reply {number}")
        add(store, f"t{number}", kind=kind, session="s", message=reply)
    add(store, "other", session="another")
    found = store.replies(SCOPE, {"s"})
    assert [(one.turn, one.reply) for one in found] == [("t2", "reply 2"), ("t0", "reply 0")]
    assert store.replies("other/agent", {"s"}) == []
    assert [one.turn for one in store.replies(SCOPE, {"s", "another"}, limit=1)] == ["other"]


def test_recent_conversations_come_with_what_was_said_last(store: Store) -> None:
    for number, session in enumerate(("a", "b", "a")):
        asked = Conversation(messages=(Message(role="user", content=f"question {number}"),))
        add(store, f"t{number}", session=session, conversation=asked)
    add(store, "side", session="c", kind=Kind.SIDE)
    assert store.recent(SCOPE) == [
        Recent(session="a", turn="t2", texts=("question 2", "Done."), asked=("question 2",), begins=True),
        Recent(session="b", turn="t1", texts=("question 1", "Done."), asked=("question 1",), begins=True),
    ]
    assert [one.session for one in store.recent(SCOPE, limit=1)] == ["a"]
    assert store.recent("other/agent") == []


def test_recent_conversations_are_the_same_however_many_began_before_anybody_asked(store: Store) -> None:
    said = {f"s{number}": f"question {number} " + "x" * (number % 2 * 40_000) for number in range(70)}
    for session, words in said.items():
        asked = Conversation(messages=(Message(role="user", content=words),))
        add(store, f"turn of {session}", session=session, conversation=asked)
    found = store.recent(SCOPE, limit=len(said))
    assert [one.session for one in found] == list(reversed(said))
    assert {one.session: one.texts for one in found} == {name: (said[name].strip(), "Done.") for name in said}
    assert all(one.begins for one in found)
    assert store.recent(SCOPE, limit=len(said)) == found


def test_a_recent_conversation_comes_again_as_of_a_branch_that_is_not_known_to_be_its_main_line(
    store: Store,
) -> None:
    add(store, "t0", session="a")
    for name in ("u1", "u2"):
        add(store, name, session="a", kind=Kind.UNKNOWN)
    add(store, "other", session="b", kind=Kind.UNKNOWN)
    assert [(one.session, one.turn) for one in store.recent(SCOPE)] in (
        [("a", "u2"), ("a", "t0")],
        [("a", "t0"), ("a", "u2")],
    )


def test_a_branch_that_became_a_session_is_recent_as_that_session(store: Store) -> None:
    add(store, "t0", session="a")
    add(store, "u1", session="a", parent="t0", kind=Kind.UNKNOWN)
    assert ("a", "u1") in [(one.session, one.turn) for one in store.recent(SCOPE)]
    store.set_kind("u1", Kind.MAIN, session="b", now=1.0)
    assert [(one.session, one.turn) for one in store.recent(SCOPE)] == [("b", "u1"), ("a", "t0")]


def test_a_recent_conversation_that_took_the_place_of_a_pruned_one_says_its_own_words(store: Store) -> None:
    for id, words in (("old", "before"), ("new", "after")):
        asked = Conversation(messages=(Message(role="user", content=words),))
        add(store, id, conversation=asked, reason=Reason.SUPERSEDED)
        assert [one.asked for one in store.recent(SCOPE)] == [(words,)]
        store.prune(now=1e9, max_age_s=1.0, max_bytes=None)
        assert store.recent(SCOPE) == []


def test_a_candidate_is_answered_once_messages_follow_it(store: Store) -> None:
    add(store, "a")
    assert [one.answered for one in store.candidates(SCOPE, [b"full a"], [])] == [False]
    store.answer("a", NO, answered_by=None, now=1.0)
    assert [one.answered for one in store.candidates(SCOPE, [b"full a"], [])] == [True]

"""A session's turns share what they have in common, and each is read back whole, whatever was removed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.errors import StoreError
from afterwit.lifecycle import Reason
from afterwit.store import Store
from afterwit.store.rows import content_columns
from afterwit.turn import Conversation, Message, Turn
from tests.store.databases import store_in_memory
from tests.store.examples import PRAISED, add, add_judged

WORDS = "The test fails because the fixture is opened twice. " * 20


def said(words: str) -> Message:
    return Message(role="user", content=words)


def grown(turn: Turn | None, messages: int, name: str) -> dict[str, object]:
    """The conversation and prompt of a turn that keeps some messages of an earlier one, and adds more."""
    kept = () if turn is None else turn.conversation.messages[:messages]
    conversation = Conversation(
        messages=(*kept, said(f"{name}: {WORDS}"), said(name)), tools=({"name": WORDS},)
    )
    ids = tuple(number for message in conversation.messages for number in map(ord, message.content or ""))
    return {"conversation": conversation, "prompt_ids": ids, "parent": None if turn is None else turn.id}


@given(
    steps=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 6), st.booleans()), min_size=2, max_size=12),
    pruned_after=st.sets(st.integers(0, 11)),
)
def test_turns_of_any_tree_are_read_back_whole_whatever_is_removed(
    steps: list[tuple[int, int, bool]], pruned_after: set[int]
) -> None:
    """Parents are of any age; some keep few of their messages; turns that ended are removed at any time."""
    turns: list[Turn] = []
    staying: dict[str, Turn] = {}
    with closing(store_in_memory()) as store:
        for number, (back, messages, ends) in enumerate(steps):
            parent = turns[-1 - back] if back < len(turns) else None
            turn = add(
                store,
                f"t{number}",
                reason=Reason.SIDE_TURN if ends else None,
                **grown(parent, messages, f"t{number}"),
            )
            turns.append(turn)
            if not ends:
                staying[turn.id] = turn
            if number in pruned_after:
                store.prune(now=1.0, max_age_s=0.0, max_bytes=None)
        store.prune(now=1.0, max_age_s=0.0, max_bytes=None)
        assert {record.turn.id: record.turn for record in store.turns()} == staying


def session(store: Store, steps: int) -> list[Turn]:
    turns: list[Turn] = []
    for number in range(steps):
        before = turns[-1] if turns else None
        turns.append(add(store, f"t{number}", **grown(before, 2 * number, f"t{number}")))
    return turns


def test_a_session_takes_the_room_of_its_last_turn_and_little_more(store: Store) -> None:
    """Stored whole, 60 steps take thirty times the last one."""
    empty = store.size()
    turns = session(store, 60)
    last = sum(len(value) for value in content_columns(turns[-1]).values() if isinstance(value, bytes))
    assert store.size() - empty < 2 * last
    assert [record.turn for record in store.turns()] == turns


def test_removing_a_whole_session_leaves_nothing_of_it(path: Path, store: Store) -> None:
    for number in range(5):
        turn = add(
            store, f"t{number}", reason=Reason.SIDE_TURN, **grown(None, 0, "the vault opens with 4711")
        )
        add(store, f"u{number}", reason=Reason.SIDE_TURN, **grown(turn, 9, "and then"))
    store.prune(now=1.0, max_age_s=0.0, max_bytes=None)
    assert not any(b"4711" in file.read_bytes() for file in path.parent.iterdir())


def test_equal_prompts_are_one_group_whichever_turns_they_followed(store: Store) -> None:
    one, other = (add(store, name, **grown(None, 0, "same")) for name in ("one", "other"))
    for name, parent in (("a", one), ("b", other), ("c", None)):
        prompt = grown(one, 9, "next") | {"parent": None if parent is None else parent.id}
        add_judged(store, name, PRAISED, prompt_hash=b"equal", **prompt)
    assert store.group_rewards(["a"]) == {"a": (1, 1, 1)}


def test_a_base_that_is_missing_is_said(path: Path, store: Store) -> None:
    session(store, 3)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM contents WHERE seq = 1")
        connection.commit()
    with pytest.raises(StoreError, match="damaged: row 2 needs row 1"):
        store.turn("t2")

"""Lists, ids, counts and exports."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from afterwit.errors import StoreError, TurnNotFound
from afterwit.lifecycle import Reason, State
from afterwit.store import Filter, Store, summary, whole
from afterwit.turn import Kind
from tests.store.examples import HINTED, NO, PRAISED, a_version, add, add_judged


def ids(records: object) -> list[str]:
    return [record.turn.id for record in records]  # type: ignore[attr-defined]


def test_turns_come_in_the_order_of_arrival_or_the_newest_first(store: Store) -> None:
    names = [f"t{number}" for number in range(150)]
    for name in names:
        add(store, name)
    assert ids(store.turns()) == names
    assert ids(store.turns(newest_first=True)) == names[::-1]
    assert ids(store.turns(limit=100)) == names[:100]
    assert ids(store.turns(newest_first=True, limit=3)) == names[:-4:-1]


def test_a_page_continues_after_the_last_turn_of_the_page_before(store: Store) -> None:
    for number in range(5):
        add(store, f"t{number}")
    first = list(store.turns(limit=2))
    assert ids(store.turns(after=first[-1].seq)) == ["t2", "t3", "t4"]
    newest = list(store.turns(limit=2, newest_first=True))
    assert ids(store.turns(after=newest[-1].seq, newest_first=True)) == ["t2", "t1", "t0"]


def test_filters_narrow_a_list(store: Store) -> None:
    add(store, "a", session="one", reason=Reason.SIDE_TURN, kind=Kind.SIDE)
    add(store, "b", session="one")
    add(store, "c", session="two")
    assert ids(store.turns(Filter(session="one"))) == ["a", "b"]
    assert ids(store.turns(Filter(state=State.OPEN))) == ["b", "c"]
    assert ids(store.turns(Filter(reason=Reason.SIDE_TURN))) == ["a"]
    assert ids(store.turns(Filter(kind=Kind.MAIN, session="two"))) == ["c"]


def test_turns_are_counted_by_state_and_reason(store: Store) -> None:
    add(store, "a", reason=Reason.SIDE_TURN)
    add(store, "b", reason=Reason.PENALTIES)
    add(store, "c", reason=Reason.PENALTIES)
    add(store, "d")
    counts = store.counts()
    assert counts.states == {State.SKIPPED: 3, State.OPEN: 1}
    assert counts.reasons == {Reason.SIDE_TURN: 1, Reason.PENALTIES: 2}


def test_an_exported_turn_is_plain_json_and_whole(store: Store) -> None:
    add_judged(store, "a")
    store.commit_version(a_version(1, ["a"]), now=0.0)
    line = json.loads(json.dumps(whole(store.turn("a"))))
    assert line["ids"] == [4, 5]
    assert line["logprobs"] == [-0.5, -0.25]
    assert line["next_state"] == {"messages": [NO[0].to_dict()], "feedback": None}
    assert (line["reward"], line["hints"], line["trained_in"]) == (-1, ["Open the file that was named."], [1])
    assert [vote["rejected"] for vote in line["votes"]] == [None, None, "no box"]


def test_a_listed_turn_has_every_documented_field(store: Store) -> None:
    add(store, "a")
    line = json.loads(json.dumps(summary(store.turn("a"))))
    expected = {
        "id",
        "session",
        "parent",
        "kind",
        "state",
        "reason",
        "versions",
        "next_state",
        "reward",
        "hints",
    }
    assert expected <= set(line)
    assert (line["next_state"], line["reward"], line["hints"]) == (None, None, [])


def test_a_turn_is_found_by_the_beginning_of_its_id(store: Store) -> None:
    for name in ("ab1", "ab2", "ab21", "b_1", "bx1", "é"):
        add(store, name)
    assert store.resolve("ab1") == "ab1"
    assert store.resolve("ab2") == "ab2"
    assert store.resolve("b_") == "b_1"
    assert store.resolve("é") == "é"


@pytest.mark.parametrize("prefix", ["c", "ab11", "%", "AB1"])
def test_a_beginning_that_no_id_has_is_not_found(store: Store, prefix: str) -> None:
    add(store, "ab1")
    with pytest.raises(TurnNotFound, match=f"there is no turn {prefix}"):
        store.resolve(prefix)


def test_an_ambiguous_beginning_names_the_turns(store: Store) -> None:
    for number in range(20):
        add(store, f"t{number}")
    with pytest.raises(StoreError, match=r"several turns begin with t: t0, t1, t10, .*, t15, \.\.\.$"):
        store.resolve("t")


def test_responses_are_read_by_turn_with_their_scope(store: Store) -> None:
    add(store, "a")
    add(store, "b", scope="key/other")
    turns = [store.turn(name).turn for name in ("a", "b")]
    assert store.messages_of(["a", "b", "c"]) == {turn.id: turn.message for turn in turns}
    assert store.scopes(["a", "b", "c"]) == {turn.id: turn.scope for turn in turns}
    assert store.messages_of([]) == store.scopes([]) == {}


def test_a_group_is_every_judged_turn_of_the_same_prompt_and_scope(store: Store) -> None:
    """Whatever its state: a reward of 0 belongs to the group, as does a turn that trained."""
    unclear = replace(HINTED, reward=0)
    for name, verdict in (("a", HINTED), ("b", PRAISED), ("c", unclear)):
        add_judged(store, name, verdict, prompt_hash=b"same")
    add_judged(store, "elsewhere", PRAISED, prompt_hash=b"same", scope="another")
    add_judged(store, "longer", PRAISED, prompt_hash=b"same", prompt_ids=(1, 2, 3, 4, 5, 6))
    add_judged(store, "alone", PRAISED)
    store.commit_version(a_version(1, ["b"]), now=1.0)
    group = (HINTED.reward, 1, 0)
    assert store.group_rewards(["a", "b"]) == {"a": group, "b": group}
    assert store.group_rewards(["alone", "longer"]) == {"alone": (1,), "longer": (1,)}
    assert store.group_rewards([]) == {}

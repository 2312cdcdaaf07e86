"""Main line, side turn, or unknown: which of a parent's children continues the conversation."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from afterwit.binding.bind import Resolution, resolve
from afterwit.binding.evidence import Candidate
from afterwit.turn import Kind

MAIN, SIDE, UNKNOWN = Kind.MAIN, Kind.SIDE, Kind.UNKNOWN


def branch(turn: str = "a", kind: Kind = MAIN, *, children: int = 0, answered: bool = False) -> Candidate:
    return Candidate(
        turn=turn,
        session="s",
        parent="parent",
        prompt_hash=b"",
        full_hash=b"",
        depth=1,
        full_depth=2,
        delivered=True,
        kind=kind,
        created=0.0,
        children=children,
        answered=answered,
    )


PARENT = branch("parent", children=1, answered=True)


def test_an_only_child_is_the_main_line():
    assert resolve(MAIN, parent=branch("parent"), siblings=[]) == Resolution(kind=MAIN, answers=True)


def test_a_first_turn_has_nobody_to_contend_with():
    assert resolve(MAIN, parent=None, siblings=[]) == Resolution(kind=MAIN, answers=False)


def test_of_two_leaves_neither_is_known_to_be_the_conversation():
    resolved = resolve(MAIN, parent=PARENT, siblings=[branch()])
    assert resolved == Resolution(kind=UNKNOWN, answers=False, changes=(("a", UNKNOWN),))


def test_a_line_that_goes_on_stays_the_main_line():
    assert resolve(MAIN, parent=PARENT, siblings=[branch(children=1)]) == Resolution(
        kind=UNKNOWN, answers=False
    )


def test_side_turns_contend_for_nothing():
    assert resolve(MAIN, parent=PARENT, siblings=[branch(kind=SIDE, children=3)]).kind is MAIN


def test_a_sibling_that_was_complained_of_contends_for_nothing():
    assert resolve(MAIN, parent=PARENT, siblings=[branch(answered=True)]).kind is MAIN


def test_an_unknown_turn_that_goes_on_is_the_conversation():
    resolved = resolve(MAIN, parent=branch("parent", UNKNOWN), siblings=[])
    assert resolved == Resolution(kind=MAIN, answers=True, changes=(("parent", MAIN),), confirmed="parent")


def test_a_side_turn_decides_nothing_about_its_siblings_and_answers_only_if_nobody_did():
    assert resolve(SIDE, parent=branch("parent", UNKNOWN), siblings=[]) == Resolution(kind=SIDE, answers=True)
    assert resolve(SIDE, parent=PARENT, siblings=[branch()]) == Resolution(kind=SIDE, answers=False)


branches = st.lists(
    st.builds(
        branch,
        st.text("abcdef", min_size=1, max_size=2),
        st.sampled_from(Kind),
        children=st.integers(min_value=0, max_value=2),
        answered=st.booleans(),
    ),
    max_size=5,
    unique_by=lambda one: one.turn,
)


@given(kind=st.sampled_from([MAIN, SIDE]), siblings=branches, unknown=st.booleans())
def test_only_what_is_undecided_changes_and_an_answer_needs_a_known_line(kind, siblings, unknown):
    parent = branch("parent", UNKNOWN if unknown else MAIN)
    resolved = resolve(kind, parent=parent, siblings=siblings)
    by_turn = {one.turn: one for one in siblings}
    for turn, changed in resolved.changes:
        if turn == "parent":
            assert (unknown, changed) == (True, MAIN)
        else:
            assert (by_turn[turn].kind, by_turn[turn].children, changed) == (MAIN, 0, UNKNOWN)
    assert not (resolved.kind is UNKNOWN and resolved.answers)
    assert resolved.kind is not MAIN or kind is MAIN
    assert resolve(kind, parent=parent, siblings=siblings[::-1]).kind is resolved.kind

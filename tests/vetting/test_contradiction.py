"""Verdicts that contradict several other sources; shares of an update."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.learning.schedule import largest_share, within_limit
from afterwit.turn import Message, ToolCall
from afterwit.verdict import Waiting
from afterwit.vetting.doubts import Votes, contradicts, previous, several, signature

TRUSTED = {"ann": Votes(approved=3), "bob": Votes(approved=2), "eve": Votes(approved=0, rejected=0)}


def call(name: str, arguments: str) -> Message:
    return Message(role="assistant", tool_calls=(ToolCall(id="1", name=name, arguments=arguments),))


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ('{"path": "a", "dry_run": true}', "delete dry_run=True path"),
        ('{"path": "b"}', "delete path"),
        ('{"dry_run": false, "path": "b"}', "delete dry_run=False path"),
        (r'{"path\ud83d": "a", "\udc00": true}', "delete path\ufffd \ufffd=True"),
        ("[1]", "delete ?"),
        ("{", "delete ?"),
    ],
)
def test_a_kind_of_call_is_its_name_its_arguments_names_and_its_flags(arguments: str, kind: str) -> None:
    assert signature(call("delete", arguments)) == kind
    assert signature(Message(role="assistant", content="Done.")) is None


def test_the_call_before_is_the_latest_since_a_person_spoke() -> None:
    dry = call("delete", '{"path": "a", "dry_run": true}')
    asked = Message(role="user", content="Delete a.")
    shown = Message(role="tool", content="would delete a", tool_call_id="1")
    assert previous([asked]) == previous([]) == ""
    assert previous([asked, dry, shown]) == "delete dry_run=True path"
    assert previous([asked, dry, shown, asked]) == "", "another request"


def test_several_others_must_have_spoken() -> None:
    assert several(TRUSTED, source="eve")
    assert not several(TRUSTED, source="ann"), "eve said nothing either way"


def test_one_voice_against_two_that_approved_waits() -> None:
    assert contradicts(-1, source="eve", said=TRUSTED, earlier=0)
    assert not contradicts(1, source="eve", said=TRUSTED, earlier=0)
    assert not contradicts(-1, source="ann", said=TRUSTED, earlier=0), "only one other approved it"
    assert not contradicts(-1, source="eve", said={}, earlier=0)


def test_what_the_others_reject_too_may_be_rejected() -> None:
    mixed = {"ann": Votes(approved=3, rejected=1), "bob": Votes(approved=1)}
    assert contradicts(-1, source="eve", said=mixed, earlier=0)
    assert not contradicts(-1, source="eve", said=mixed | {"bob": Votes(approved=1, rejected=1)}, earlier=0)


def test_praise_of_what_two_others_rejected_waits_if_a_person_spoke() -> None:
    refused = {"ann": Votes(rejected=3), "bob": Votes(rejected=1, approved=1), "eve": Votes(approved=5)}
    assert contradicts(1, source="eve", said=refused, earlier=0)
    assert not contradicts(1, source="eve", said=refused, earlier=0, spoken=False)
    assert not contradicts(1, source="ann", said=refused, earlier=0), "only one other rejected it"
    assert not contradicts(0, source="eve", said=refused, earlier=0)
    both = refused | {"bob": Votes(rejected=1, approved=2)}
    assert not contradicts(1, source="eve", said=both, earlier=0)


@pytest.mark.parametrize(
    ("worked", "failed", "waits"), [(0, 0, False), (0, 2, True), (3, 4, False), (3, 5, True)]
)
def test_failed_calls_wait_once_more_failed_at_their_source_than_worked(
    worked: int, failed: int, waits: bool
) -> None:
    said = TRUSTED | {"eve": Votes(approved=worked, rejected=failed)}
    assert contradicts(-1, source="eve", said=said, earlier=0, spoken=False) is waits
    assert contradicts(-1, source="eve", said=said, earlier=0), "a person's word is no accident"


def test_after_two_contradictions_a_sources_praise_waits_too() -> None:
    assert [contradicts(1, source="eve", said={}, earlier=count) for count in (0, 1, 2)] == [
        False,
        False,
        True,
    ]


@given(st.integers(1, 64), st.integers(1, 9), st.floats(0, 1))
def test_all_sources_together_can_fill_an_update(size: int, sources: int, share: float) -> None:
    room = largest_share(size, sources=sources, share=share)
    assert room * sources >= size
    assert room <= size or share == 1
    if sources == 1:
        assert room == size


def test_a_share_is_a_part_of_an_update_of_at_least_one_turn_and_source() -> None:
    assert largest_share(16, sources=9, share=0.25) == 4
    with pytest.raises(ValueError, match="0 sources"):
        largest_share(16, sources=0, share=0.25)


def test_what_a_source_has_beyond_its_limit_of_the_day_waits() -> None:
    waiting = [
        Waiting(seq=seq, turn=str(seq), session="s", since=0.0, oldest_version=0, ended=False, source=source)
        for seq, source in enumerate(["eve", "ann", "eve", "eve", "ann"])
    ]
    assert [turn.seq for turn in within_limit(waiting, used={"eve": 1}, limit=2)] == [0, 1, 4]
    assert within_limit(waiting, used={"eve": 9}, limit=0) == waiting

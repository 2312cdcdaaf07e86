"""Segments depend on a conversation's words, not on what clients change."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.binding.request import canonical_json, extend, fingerprints, read_message, segments_of
from afterwit.turn import Message, ToolCall
from tests.binding.bindings import says

CODE = "{'id': 'call_1', 'type': 'function', 'function': {'name': 'python_interpreter', 'arguments': '1'}}"
AIDER = "thinking-content-" + "7b" * 16


def read(messages):
    return segments_of(map(read_message, messages))


def segments(*messages: Message):
    return [segment.parts for segment in read(messages)]


def call(**fields: str) -> Message:
    made = {"id": "call_ab1", "name": "read", "arguments": '{"path": "a", "n": 1}'} | fields
    return Message(role="assistant", tool_calls=(ToolCall(**made),))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (says("user", "a  b\n"), says("user", "\ta b")),
        (says("user", "a", name="Ann"), says("user", "a")),
        (says("assistant", "<think>hm</think>\n\na"), says("assistant", "a", reasoning="hm")),
        (says("user", "a\n<system-reminder>x</system-reminder>"), says("user", "a")),
        (says("assistant", "<code>\n1"), says("assistant", f"<code>\n1\n</code>\nCalling tools:\n[{CODE}]")),
        (says("assistant", "x"), says("assistant", f"<{AIDER}>\nhm\n</{AIDER}>\n\nx\n")),
        (call(), call(id="CALLab1")),
        (call(), call(arguments='{"n":1.0,"path":"\\u0061"}')),
        (call(arguments='{"n": 1e2}'), call(arguments='{"n": 100}')),
        (call(arguments='{"n": 12345678901234567890}'), call(arguments='{"n": 12345678901234567000}')),
        (says("tool", "x", tool_call_id="call_1", name="f"), says("tool", " x", tool_call_id="call1")),
    ],
)
def test_a_retelling_has_the_same_atoms(one, other):
    assert segments(one) == segments(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (says("user", "a"), says("user", "b")),
        (says("user", "a"), says("assistant", "a")),
        (says("user", "a b"), says("user", "ab")),
        (says("assistant", "x\nCalling tools:\n[{'id': 'calla'}]"), says("assistant", "x")),
        (call(), call(name="write")),
        (call(), call(id="call_ab2")),
        (call(), call(arguments='{"path": "a", "n": 2}')),
        (call(arguments='{"n": 1}'), call(arguments='{"n": "1"}')),
        (call(arguments='{"n": 1}'), call(arguments='{"n": true}')),
        (says("tool", "x", tool_call_id="a"), says("tool", "x", tool_call_id="b")),
    ],
)
def test_another_meaning_has_other_atoms(one, other):
    assert segments(one) != segments(other)


def test_system_text_and_empty_text_are_no_atoms():
    assert segments(says("system", "x"), says("developer", "y"), says("assistant", " "), says("user")) == []


def test_a_text_and_each_call_of_a_message_are_atoms_of_their_own():
    made = tuple(ToolCall(id=f"c{n}", name="f", arguments="{}") for n in range(2))
    parts = segments(says("assistant", "Now:", tool_calls=made))
    assert [part[0] for part in parts] == ["assistant", "call", "call"]


def test_an_empty_tool_result_is_still_a_result():
    assert len(segments(says("tool", "", tool_call_id="a"))) == 1


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**53), max_value=2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(value=json_values)
def test_canonical_json_means_the_same_and_is_its_own_canon(value):
    canon = canonical_json(json.dumps(value, indent=2, ensure_ascii=False))
    assert json.loads(canon) == value
    assert canonical_json(canon) == canon


@given(text=st.text() | st.sampled_from(["[" * 5000, "NaN", "1e999", '{"a":']))
def test_text_that_is_not_json_is_compared_as_text(text):
    canonical_json(text)


messages = st.lists(
    st.builds(says, st.sampled_from(["user", "assistant", "system"]), st.text(max_size=4)), max_size=6
)


@given(messages=messages, cut=st.integers(min_value=0, max_value=6))
def test_a_fingerprint_grows_by_what_is_added(messages, cut):
    whole = read(messages)
    hashes = fingerprints(whole, "scope")
    assert len(hashes) == len(whole) + 1
    cut = min(cut, len(whole))
    assert fingerprints(whole[:cut], "scope") == hashes[: cut + 1]
    assert extend(hashes[cut], (segment.parts for segment in whole[cut:])) == hashes[-1]


@given(one=messages, other=messages)
def test_fingerprints_are_equal_only_for_equal_atoms_of_one_partition(one, other):
    a, b = read(one), read(other)
    same = [segment.parts for segment in a] == [segment.parts for segment in b]
    assert (fingerprints(a, "s")[-1] == fingerprints(b, "s")[-1]) == same
    assert fingerprints(a, "s")[-1] != fingerprints(a, "t")[-1]


def test_parts_do_not_run_into_each_other():
    assert (
        fingerprints(read([says("user", "ab"), says("user", "c")]), "s")[-1]
        != (fingerprints(read([says("user", "a"), says("user", "bc")]), "s")[-1])
    )


def test_numbers_are_javascripts():
    assert canonical_json("[1.0, -0.0, 1e2, 0.1]") == "[1,0,100,0.1]"
    assert canonical_json("[1e400]") == "[Infinity]", "only equal to itself"
    assert math.isinf(float("1e400"))

"""A growing reply: what is sent when, and what is recorded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from afterwit.chat_format.encode import Detokenizer
from afterwit.chat_format.families import HERMES, LLAMA
from afterwit.chat_format.parse import ResponseParser
from afterwit.dialects.dialect import ParsedCall, ReasoningDelta, TextDelta
from afterwit.engines.port import Step
from afterwit.gateway.reply import Reply
from afterwit.turn import Finish

END = 0
"""The end id; every other id is a character's code point."""


def decode(ids) -> str:
    return "".join(map(chr, ids))


def spell(index) -> bytes:
    return chr(index).encode()


def reply(**changes) -> Reply:
    options = {"parser": ResponseParser(HERMES), "detokenizer": Detokenizer(decode, silent={END})}
    return Reply(**options | changes)


def step(text: str, *, ended: str | None = None, forced: bool = False, version: int = 1) -> Step:
    ids = tuple(map(ord, text)) + ((END,) if ended == "stop" else ())
    logprobs = tuple(-float(place) for place in range(len(ids)))
    return Step(
        ids=ids, logprobs=logprobs, versions=(version,) * len(ids), forced=(forced,) * len(ids), ended=ended
    )


def steps(text: str, size: int) -> list[Step]:
    pieces = [text[start : start + size] for start in range(0, len(text), size)] or [""]
    return [*map(step, pieces[:-1]), step(pieces[-1], ended="stop")]


def spoken(events) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def run(growing: Reply, given_steps) -> list:
    events = []
    for one in given_steps:
        events += growing.push(one)
        if growing.done:
            break
    return events + growing.finish()


CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a.txt"}}\n</tool_call>'


def test_the_record_holds_every_sampled_token_and_the_message_only_what_was_shown():
    growing = reply()
    assert spoken(run(growing, steps("Hi you", 2))) == "Hi you"
    assert growing.sampled().ids == (*map(ord, "Hi you"), END)
    assert growing.completion == 7
    assert growing.ending is Finish.STOP
    assert growing.message(str).content == "Hi you"


@given(
    st.lists(st.sampled_from(["a", " ", "\n", "<", "<tool", CALL]), max_size=6).map("".join),
    st.integers(2, 40),
)
def test_tokens_in_one_step_give_the_same_reply_as_one_by_one(text, size):
    together, one_by_one = reply(), reply()
    assert spoken(run(together, steps(text, size))) == spoken(run(one_by_one, steps(text, 1)))
    assert together.message(str) == one_by_one.message(str)
    assert together.sampled().ids == one_by_one.sampled().ids


@given(
    st.text(alphabet="ab", min_size=0, max_size=30),
    st.lists(st.text(alphabet="ab", min_size=1, max_size=4), min_size=1, max_size=3),
    st.integers(min_value=1, max_value=5),
)
def test_no_part_of_a_stop_string_is_ever_shown(text, stops, size):
    growing = reply(stops=stops)
    shown = spoken(run(growing, steps(text, size)))
    assert text.startswith(shown)
    assert not any(stop in shown for stop in stops)
    stopped = any(text.startswith(stop, len(shown)) for stop in stops)
    assert stopped if any(stop in text for stop in stops) else shown == text


def test_the_tokens_of_a_stop_string_are_recorded_and_the_reply_is_done():
    growing = reply(stops=["stop"])
    assert spoken(growing.push(step("go st"))) == "go"
    growing.push(step("op"))
    assert growing.done
    assert growing.sampled().ids == tuple(map(ord, "go stop"))
    assert spoken(growing.finish()) == " "


@given(st.integers(1, 40), st.sampled_from(["\nObservation:", "day", "\n\nIt"]))
def test_a_thought_is_not_matched_with_stop_strings(size: int, stop: str):
    """An agent's mark for the end of its turn is about what it reads, which is the content."""
    thought, content = "A day.\n\nIt is May.\nObservation: no", f"May.{stop} no"
    growing = reply(stops=[stop])
    shown = run(growing, steps(f"<think>\n{thought}\n</think>\n\n{content}", size))
    message = growing.message(str)
    assert (message.reasoning, message.content, growing.stop) == (thought, "May.", stop)
    assert "".join(event.text for event in shown if isinstance(event, ReasoningDelta)) == thought
    assert growing.sampled().ids[:7] == tuple(map(ord, "<think>"))


def test_a_forced_opening_is_not_matched_with_stop_strings():
    growing = reply(stops=["\n", "{"], forced=20)
    growing.push(step(CALL[:20], forced=True))
    assert not growing.done


def test_the_log_probs_leave_out_the_end_token_and_a_stop_string():
    growing = reply(spell=spell, stops=["X"])
    run(growing, steps("abX", 1))
    shown = growing.logprobs()
    assert [token.data for token in shown] == [b"a", b"b"]
    plain = reply(spell=spell)
    run(plain, steps("ab", 3))
    assert [token.data for token in plain.logprobs()] == [b"a", b"b"]


def test_log_probs_come_with_their_text():
    growing = reply(spell=spell, stops=["bc"])
    growing.push(step("a"))
    assert [token.data for token in growing.logprobs()] == [b"a"]
    growing.push(step("b"))
    assert growing.logprobs() == []
    growing.push(step("d"))
    assert [token.data for token in growing.logprobs()] == [b"b", b"d"]


def test_if_calls_may_not_be_parallel_the_first_one_ends_the_response():
    growing = reply(one_call=True)
    events = run(growing, steps(CALL + CALL, 7))
    assert [event.name for event in events if isinstance(event, ParsedCall)] == ["read"]
    assert len(growing.message(str).tool_calls) == 1
    assert growing.ending is Finish.TOOL_CALLS
    assert growing.completion < len(CALL) + 10


def test_calls_that_come_all_at_once_are_cut_to_the_first_too():
    growing = reply(one_call=True, parser=ResponseParser(LLAMA))
    bare = '{"name": "read", "parameters": {}}'
    events = run(growing, steps(f"{bare}; {bare}", 100))
    assert len(events) == 1
    assert len(growing.message(str).tool_calls) == 1


def test_calls_end_a_response_with_tool_calls_unless_it_was_cut():
    whole, cut = reply(), reply()
    run(whole, steps(CALL, 9))
    assert whole.ending is Finish.TOOL_CALLS
    run(cut, [step(CALL), step("and", ended="length")])
    assert cut.ending is Finish.LENGTH


def test_a_reply_without_an_end_was_cut():
    growing = reply()
    growing.push(step("half"))
    growing.finish()
    assert growing.ending is Finish.LENGTH


def test_the_version_is_the_latest_tokens():
    growing = reply()
    assert growing.version is None
    growing.push(step("a", version=4))
    growing.push(step("b", version=5))
    assert growing.version == 5
    assert growing.sampled().versions == (4, 5)


def test_a_stop_string_ends_a_reply_that_was_sampled_under_a_constraint():
    growing = reply(stops=["}"])
    run(growing, [step('{"a": 1}', forced=True), step("", ended="stop")])
    assert growing.stop == "}"

"""Any conversation finds its parents, however a client rewords it, next to any other conversation."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from afterwit.binding.bind import bind
from afterwit.binding.evidence import Candidate, Recent
from afterwit.binding.request import ClientSession, read_request
from afterwit.turn import ROLES, Kind, Message, ToolCall, call_id, turn_id
from tests.binding.bindings import Memory, Row, says, talk

words = st.text(max_size=12)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words
objects = st.dictionaries(words, scalars | st.lists(scalars, max_size=2), max_size=3)
Step = tuple[str, list[dict], list[str]]
steps = st.tuples(words, st.lists(objects, max_size=2), st.lists(words, min_size=1, max_size=2))
"""A response (text and calls' arguments) and what people say to it."""
scripts = st.lists(steps, min_size=1, max_size=4)


class Talk:
    """One client's conversation, played step by step. `marker` makes its responses unlike any other's."""

    def __init__(
        self, marker: str, script: list[Step], retell: Callable[[Message], Message] = lambda m: m
    ) -> None:
        self.history = [says("system", "Be brief."), says("user", "the same first prompt")]
        self.marker, self.script, self.retell = marker, script, retell
        self.rows: list[Row] = []

    def step(self, memory: Memory, *, delivered: bool = True) -> bool:
        """One request; False when the conversation is over."""
        if len(self.rows) == len(self.script):
            return False
        text, arguments, replies = self.script[len(self.rows)]

        def response(turn: str) -> Message:
            made = (
                ToolCall(id=call_id(turn, index), name="tool", arguments=json.dumps(value))
                for index, value in enumerate(arguments)
            )
            return says("assistant", f"{self.marker} {len(self.rows)} {text}", tool_calls=tuple(made))

        row = memory.ask(talk(*self.history), response, delivered=delivered)
        self.rows.append(row)
        results = (says("tool", "ok", tool_call_id=call.id) for call in row.response.tool_calls)
        self.history += [self.retell(row.response), *map(self.retell, results)]
        self.history += [self.retell(says("user", f"well: {reply}")) for reply in replies]
        return True

    def check(self) -> None:
        """Every turn is the child of the one before it, which it answers in full."""
        assert [row.binding.parent for row in self.rows] == [None, *(row.id for row in self.rows[:-1])]
        assert {row.binding.session for row in self.rows} == {self.rows[0].id}
        assert {row.kind for row in self.rows} == {Kind.MAIN}
        for row, (_, arguments, replies) in zip(self.rows[:-1], self.script, strict=False):
            assert len(row.next_state) == len(arguments) + len(replies)


@given(script=scripts)
def test_an_honest_growing_conversation_always_finds_its_parent(script):
    memory, one = Memory(), Talk("a", script)
    while one.step(memory):
        pass
    one.check()


@given(scripts=st.lists(scripts, min_size=2, max_size=3), order=st.randoms(use_true_random=False))
def test_conversations_that_arrive_in_any_order_never_cross(scripts: list[list[Step]], order: random.Random):
    memory = Memory()
    talks = [Talk(f"talk{number}", script) for number, script in enumerate(scripts)]
    waiting = list(talks)
    while waiting:
        one = order.choice(waiting)
        if not one.step(memory):
            waiting.remove(one)
    for one in talks:
        one.check()


def retelling(seed: int) -> Callable[[Message], Message]:
    """A client that changes everything without meaning, differently each time."""
    chance = random.Random(seed)

    def spaced(text: str | None) -> str | None:
        if text is None:
            return None
        return chance.choice(["", "\n", "  "]) + text.replace(" ", chance.choice([" ", "\n", " \t "])) + " "

    def call(made: ToolCall) -> ToolCall:
        value = json.loads(made.arguments)
        items = list(value.items())
        chance.shuffle(items)
        separators = chance.choice([(",", ":"), (" ,  ", " : ")])
        text = json.dumps(dict(items), ensure_ascii=chance.random() < 0.5, separators=separators)
        return ToolCall(id=made.id.upper()[:4] + "_" + made.id[4:], name=made.name, arguments=text)

    def retell(message: Message) -> Message:
        content = spaced(message.content)
        if message.role == "assistant":
            content = f"<think>{chance.random()} so</think>{content}"
        elif chance.random() < 0.5:
            content = f"{content}<system-reminder>{chance.random()}</system-reminder>"
        return Message(
            role=message.role,
            content=content,
            reasoning=chance.choice([None, "hm"]) if message.role == "assistant" else None,
            tool_calls=tuple(call(made) for made in message.tool_calls),
            tool_call_id=message.tool_call_id and message.tool_call_id.upper(),
            name=chance.choice([None, "tool"]),
        )

    return retell


@given(script=scripts, seed=st.integers(min_value=0, max_value=2**32))
def test_retelling_changes_nothing(script, seed):
    memory, one = Memory(), Talk("a", script, retelling(seed))
    while one.step(memory):
        pass
    one.check()


@given(script=scripts)
def test_scopes_never_cross(script):
    memory, one = Memory(), Talk("a", script)
    while one.step(memory):
        pass
    other = memory.ask(talk(*one.history), says("assistant", "x"), scope="another key/client")
    assert (other.binding.parent, other.binding.session, other.binding.answers) == (None, other.id, None)


@given(script=scripts, where=st.integers(min_value=0, max_value=3))
def test_a_retry_takes_the_place_of_the_first_attempt(script, where):
    memory, one = Memory(), Talk("a", script[: where + 1])
    while one.step(memory, delivered=len(one.rows) + 1 < len(one.script)):
        pass
    cut = one.rows[-1]
    again = memory.ask(talk(*cut.incoming.messages), says("assistant", "again"))
    assert again.binding.retry_of == cut.id
    assert (again.binding.parent, again.binding.session) == (cut.binding.parent, cut.binding.session)
    assert again.kind is Kind.MAIN


anything = st.builds(
    lambda role, content, thought, made, call, name: Message(
        role=role, content=content, reasoning=thought, tool_calls=tuple(made), tool_call_id=call, name=name
    ),
    st.sampled_from(ROLES),
    st.none() | words | st.sampled_from(["<think>", "</think>", "\ud800", "<system-reminder>"]),
    st.none() | words,
    st.lists(
        st.builds(
            lambda identifier, name, arguments: ToolCall(id=identifier, name=name, arguments=arguments),
            words | st.just(call_id(turn_id(1.0, b"0123456789"), 0)),
            words,
            words | st.sampled_from(["{", "[" * 3000, "1e999", "NaN", '{"a": 1e400}', '"\\ud800"']),
        ),
        max_size=2,
    ),
    st.none() | words,
    st.none() | words,
)
hashes = st.binary(min_size=16, max_size=16)
retellable = st.builds(
    Recent,
    session=st.just("r"),
    turn=st.just("r"),
    asked=st.lists(words, max_size=2).map(tuple),
    texts=st.lists(words, max_size=3).map(tuple),
)


def test_calls_under_other_ids_follow_no_turn_whose_response_is_unknown():
    call = Message(role="assistant", tool_calls=(ToolCall(id="theirs", name="run", arguments="{}"),))
    incoming = read_request(
        turn=turn_id(2.0, b"9876543210"),
        scope="s",
        conversation=talk(Message(role="user", content="Run it."), call),
        client=ClientSession(),
        streamed=False,
    )
    stored = Candidate(
        turn="a",
        session="a",
        parent=None,
        prompt_hash=incoming.fingerprints[1],
        full_hash=b"?" * 16,
        depth=1,
        full_depth=incoming.depth + 2,
        delivered=True,
        kind=Kind.MAIN,
        created=0.0,
        children=0,
        answered=False,
        reply=None,
    )
    assert bind(incoming, [stored], []).parent is None


@given(history=st.lists(anything, min_size=1, max_size=6), data=st.data())
def test_no_messages_at_all_and_no_candidates_at_all_make_it_raise(history, data):
    incoming = read_request(
        turn=turn_id(2.0, b"9876543210"),
        scope="s",
        conversation=talk(*history),
        client=ClientSession(),
        streamed=False,
    )
    known = st.sampled_from(incoming.fingerprints) | hashes
    depths = st.integers(min_value=0, max_value=incoming.depth + 2)
    stored = st.builds(
        Candidate,
        turn=st.sampled_from(["a", "b", *incoming.mentions]),
        session=st.sampled_from(["a", "b"]),
        parent=st.none() | st.just("a"),
        prompt_hash=known,
        full_hash=known,
        depth=depths,
        full_depth=depths,
        delivered=st.booleans(),
        kind=st.sampled_from(Kind),
        created=st.floats(min_value=0, max_value=9),
        children=st.integers(min_value=0, max_value=2),
        answered=st.booleans(),
        reply=st.none() | words,
    )
    candidates = data.draw(st.lists(stored, max_size=5, unique_by=lambda one: one.turn))
    recent = data.draw(st.lists(retellable, max_size=2))
    binding = bind(incoming, candidates, recent)
    sessions = {one.session for one in (*candidates, *recent)}
    assert binding.session in {incoming.turn, *sessions}
    assert binding.answers is None or binding.next_state
    assert all(message.role in ("user", "tool") for message in binding.next_state)
    assert binding == bind(incoming, list(reversed(candidates)), recent), (
        "the order of candidates says nothing"
    )


def test_a_stored_conversation_without_any_text_is_gone_on_with_by_nobody():
    said = [Message(role=role, content="hm") for role in ("user", "user", "assistant", "user")]
    incoming = read_request(
        turn=turn_id(2.0, b"9876543210"),
        scope="s",
        conversation=talk(*said),
        client=ClientSession(),
        streamed=False,
    )
    silent = Recent(session="r", turn="r", asked=("", ""), texts=())
    assert bind(incoming, [], [silent]).session == incoming.turn

"""A session goes on when its client compacts it, in the three forms that clients use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from afterwit.binding.evidence import Recent, paraphrased
from afterwit.binding.request import ClientSession, read_request
from afterwit.dialects.messages import parse_request as parse_messages
from afterwit.gateway.settings import GatewaySettings
from afterwit.judging.questions import reactions
from afterwit.turn import Conversation, Kind, Message, call_id
from tests.binding.bindings import FINE, SCOPE, Memory, Row, calls, replay, says, talk, tree

INSTRUCTION = says("system", "You are the keeper of the record. Condense what you are given.")
SUMMARY = says("assistant", "The person had a command run by a tool, twice; both times it said hello. " * 2)
NEW = says("user", "And now run the tests, please")


def written_out(messages: Sequence[Message]) -> str:
    """A conversation as text, as pi and OpenClaw write it."""
    lines = []
    for message in messages:
        if message.role != "system" and message.content:
            lines.append(f"[{message.role.capitalize()}]: {message.content[:2000]}")
        lines += [f"[Assistant tool calls]: {call.name}({call.arguments})" for call in message.tool_calls]
    return "\n\n".join(lines)


def summarised(memory: Memory, row: Row) -> Row:
    """The session is sent inside one message, under other instructions and without tools."""
    history = [*row.incoming.messages, row.response]
    request = says("user", f"<conversation>\n{written_out(history)}\n</conversation>\nSummarise it.")
    return memory.ask(talk(INSTRUCTION, request), SUMMARY)


def handed_on(content: str = "") -> Message:
    return says(
        "user", f"The conversation so far was compacted:\n<summary>\n{SUMMARY.content}\n</summary>{content}"
    )


def as_before(row: Row, *messages: Message) -> Conversation:
    """A request of the same agent: its system text and its tools."""
    system = [message for message in row.incoming.messages if message.role == "system"]
    return replace(row.conversation, messages=(*system, *messages))


@pytest.fixture(params=["hermes", "openclaw", "smolagents_code", "mini_swe_agent"])
def session(request: pytest.FixtureRequest) -> tuple[Memory, list[Row]]:
    memory = Memory()
    return memory, replay(request.param, memory)


def main_line(rows: Sequence[Row]) -> Row:
    return [row for row in rows if row.kind is Kind.MAIN][-1]


def test_a_request_that_carries_the_session_in_one_message_is_a_side_turn_of_it(session):
    memory, rows = session
    last = main_line(rows)
    known = {row.id: row.next_state for row in rows}
    side = summarised(memory, last)
    assert (side.kind, side.binding.parent, side.binding.session) == (Kind.SIDE, None, last.binding.session)
    assert {row.id: row.next_state for row in rows} == known


def test_a_summary_alone_begins_a_new_segment_of_the_session(session):
    memory, rows = session
    last = main_line(rows)
    known = {row.id: row.next_state for row in rows}
    summarised(memory, last)
    after = memory.ask(as_before(last, handed_on(), NEW), FINE)
    assert (after.kind, after.binding.parent) == (Kind.MAIN, None)
    assert after.binding.session == last.binding.session
    assert {row.id: row.next_state for row in rows} == known | {last.id: (NEW,)}, "only the last reply waited"


def test_behind_a_kept_suffix_the_parent_is_the_last_reply(session):
    """Summary, an old user message, a call and its result, the reply, the new message."""
    memory, rows = session
    last = main_line(rows)
    asked = as_before(last, *last.incoming.messages[1:], last.response, NEW)
    called = memory.ask(asked, calls("read"))
    result = says("tool", "12 passed", tool_call_id=called.response.tool_calls[0].id)
    reply = says("assistant", "All twelve tests pass.")
    said = memory.ask(as_before(last, *asked.messages[1:], called.response, result), reply)
    summarised(memory, last)
    kept = (handed_on(), NEW, called.response, result, reply, says("user", "Wrong: run them all"))
    after = memory.ask(as_before(last, *kept), FINE)
    assert (after.binding.parent, after.binding.session) == (said.id, last.binding.session)
    assert (after.kind, said.kind) == (Kind.MAIN, Kind.MAIN)
    assert said.said == ("Wrong: run them all",)
    assert called.next_state == (result,)


def test_a_kept_suffix_without_calls_is_found_by_the_reply_that_the_summary_leads_to(session):
    memory, rows = session
    last = main_line(rows)
    reply = says("assistant", "All twelve tests pass.")
    said = memory.ask(as_before(last, *last.incoming.messages[1:], last.response, NEW), reply)
    summarised(memory, last)
    after = memory.ask(as_before(last, handed_on(), NEW, reply, says("user", "Thanks")), FINE)
    assert (after.binding.parent, after.kind) == (said.id, Kind.MAIN)
    assert said.said == ("Thanks",)


def test_kept_user_messages_reject_nothing_and_known_next_states_stay():
    memory = Memory()
    asked = says("user", "Run the tests")
    first = memory.ask(talk(asked), says("assistant", "They fail."))
    summarise = says("user", "Your task is to create a detailed summary of the conversation so far.")
    memory.ask(talk(asked, first.response, summarise), SUMMARY)
    after = memory.ask(talk(asked, handed_on()), FINE)
    assert (after.binding.rejects, after.binding.session, after.kind) == (None, first.id, Kind.MAIN)
    assert first.next_state == ()


def test_kept_user_messages_without_a_summary_of_ours_are_no_complaint():
    """Another model wrote the summary, so nothing quotes a reply of ours."""
    memory = Memory()
    asked = says("user", "Run the tests")
    first = memory.ask(talk(asked), says("assistant", "They fail."))
    notes = says("user", "A colleague worked on this before and left notes: nothing is done yet.")
    after = memory.ask(talk(asked, notes, NEW), FINE)
    assert (after.binding.rejects, after.binding.session, first.next_state) == (None, after.id, ())
    known = says("user", "Another language model started to solve this problem. Its notes: nothing is done.")
    assert memory.ask(talk(asked, known), FINE).binding.rejects is None


def test_two_kept_user_messages_show_the_session_and_one_does_not():
    memory = Memory()
    asked, again = says("user", "Run the tests of the parser"), says("user", "And those of the server")
    reply = says("assistant", "They fail.")
    first = memory.ask(talk(asked), reply)
    memory.ask(talk(asked, reply, again), SUMMARY)
    notes = says("user", "A colleague worked on this before and left notes: nothing is done yet.")
    assert memory.ask(talk(asked, again, notes, NEW), FINE).binding.session == first.id
    other = memory.ask(talk(asked, notes, NEW), FINE)
    assert other.binding.session == other.id


def test_behind_a_kept_beginning_and_a_summary_the_parent_is_the_last_reply():
    memory = Memory()
    asked, greeting = says("user", "Run the tests"), says("assistant", "Which ones?")
    first = memory.ask(talk(asked), greeting)
    reply = says("assistant", "All twelve tests pass.")
    said = memory.ask(talk(asked, greeting, says("user", "All"), greeting, NEW), reply)
    between = says("user", "[Some messages were left out here.]")
    after = memory.ask(talk(asked, greeting, between, NEW, reply, says("user", "Thanks")), FINE)
    assert (after.binding.parent, after.binding.session) == (said.id, first.id)
    assert said.said == ("Thanks",)


def test_a_client_that_sends_only_the_last_messages_stays_in_its_session():
    memory = Memory()
    asked = says("user", "Run the tests of the parser")
    reply = says("assistant", "Twelve of them pass, one fails.")
    first = memory.ask(talk(asked), reply)
    second = memory.ask(talk(asked, reply, NEW), FINE)
    third = memory.ask(talk(reply, NEW, FINE, says("user", "Thanks")), reply)
    assert (third.binding.parent, third.binding.session) == (second.id, first.id)
    assert second.said == ("Thanks",)


def test_a_known_next_state_is_not_replaced_by_a_rejection():
    memory = Memory()
    asked, complaint = says("user", "Run the tests"), says("user", "Run them all")
    first = memory.ask(talk(asked), says("assistant", "They fail."))
    memory.store.answer(first.id, [complaint], answered_by=None, now=9.0)
    after = memory.ask(talk(asked, says("user", "Something else")), FINE)
    assert (after.binding.rejects, after.binding.answers) == (first.id, None)
    assert first.next_state == (complaint,)


def test_a_person_who_quotes_one_reply_begins_a_conversation_of_their_own(session):
    memory, rows = session
    reply = main_line(rows).response.content or "hello"
    other = memory.ask(talk(says("user", f"Another agent said: {reply}\nIs it right?")), FINE)
    assert (other.kind, other.binding.session) == (Kind.MAIN, other.id)


def test_a_session_compacted_twice_stays_one(session):
    memory, rows = session
    last = main_line(rows)
    summarised(memory, last)
    segment = memory.ask(
        as_before(last, handed_on(), NEW), says("assistant", "The first two tests pass now.")
    )
    again = says("assistant", "The tests were run, and the first two of them pass by now. " * 2)
    request = says("user", written_out([*segment.incoming.messages, segment.response]))
    side = memory.ask(talk(INSTRUCTION, request), again)
    after = memory.ask(as_before(last, says("user", f"So far:\n{again.content}"), NEW), FINE)
    assert side.binding.session == after.binding.session == last.binding.session
    assert (side.kind, after.kind) == (Kind.SIDE, Kind.MAIN)
    assert len(tree([*rows, segment, side, after])) == len(rows) + 3


def test_a_title_that_quotes_the_summary_is_beside_the_session_and_hides_nothing_of_it():
    tools = ({"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}},)
    system, memory = says("system", "You are an agent."), Memory()

    def agent(*messages: Message) -> Conversation:
        return replace(talk(system, *messages), tools=tools)

    asked, done = (
        says("user", "Please have a look at the build"),
        says("assistant", "The build is broken now."),
    )
    first = memory.ask(agent(asked, done, NEW), FINE)
    summarised(memory, first)
    said = memory.ask(agent(handed_on(), NEW), done)
    title = memory.ask(
        talk(says("system", "You write titles."), says("user", f"A title for: {handed_on().content}")), FINE
    )
    assert (title.binding.session, title.kind) == (first.binding.session, Kind.SIDE)
    again = memory.ask(agent(handed_on(), NEW, done, asked), FINE)
    assert (again.binding.parent, again.kind) == (said.id, Kind.MAIN)
    assert summarised(memory, again).kind is Kind.SIDE


def of_messages_dialect(*contents: object) -> Conversation:
    """Claude Code's shape: the words of the user and of the client are parts of one message."""
    roles = ("user", "assistant") * len(contents)
    messages = [
        {"role": role, "content": content} for role, content in zip(roles, contents, strict=False) if content
    ]
    body = {"model": "m", "max_tokens": 99, "messages": messages, "tools": [{"name": "Bash"}]}
    return parse_messages(body, GatewaySettings().request_limits).conversation


def part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


REMINDER = part("<system-reminder>\nThe date has changed.\n</system-reminder>")
CONTINUED = part(
    "This session is being continued from a previous conversation that ran out of context.\n"
    f"{SUMMARY.content}\nPlease continue from where we left it off."
)


@pytest.mark.parametrize(
    ("parts", "heard"),
    [
        ([CONTINUED, part(NEW.content or "")], NEW.content),
        ([CONTINUED, REMINDER, part(NEW.content or "")], NEW.content),
        ([REMINDER, CONTINUED, REMINDER], None),
        ([CONTINUED], None),
    ],
)
def test_words_in_one_message_with_the_summary_answer_the_last_reply(
    parts: list[dict[str, str]], heard: str | None
):
    memory = Memory()
    asked = part("Run the tests of the parser")
    first = memory.ask(of_messages_dialect([REMINDER, asked]), FINE)
    wanted = part("Your task is to create a detailed summary of the conversation so far.")
    side = memory.ask(of_messages_dialect([REMINDER, asked], FINE.content, [wanted]), SUMMARY)
    after = memory.ask(of_messages_dialect(parts), FINE)
    assert (side.kind, after.kind, after.binding.session) == (Kind.SIDE, Kind.MAIN, first.id)
    said = [message.content for message in reactions(first.next_state)]
    assert said == ([] if heard is None else [heard])


def test_a_session_that_branched_is_retold_if_any_of_its_branches_is():
    told = ("Run the tests of the parser", "Twelve tests have passed", "Now run those of the server")
    other = ("What is in the file of notes?", "It holds the word plum alone")
    incoming = read_request(
        turn="side",
        scope=SCOPE,
        conversation=talk(says("user", "\n".join(told))),
        client=ClientSession(),
        streamed=True,
    )
    branches = [
        Recent(session="one", turn="b", texts=told),
        Recent(session="one", turn="a", texts=(told[0], *other)),
        Recent(session="two", turn="c", texts=other),
    ]
    assert paraphrased(incoming, branches) == paraphrased(incoming, branches[::-1]) == {"one"}


def test_the_answer_behind_which_the_summary_was_asked_is_the_one_that_was_kept():
    """Two answers to one prompt contend; the session goes on from a summary of the second."""
    memory = Memory()
    asked, wanted = (
        says("user", "Run the tests"),
        says("user", "Your task is to create a detailed summary of the conversation so far."),
    )
    begun = memory.ask(talk(asked), says("assistant", "Which ones?"))
    more = (asked, begun.response, says("user", "All of them"))
    left = memory.ask(talk(*more), says("assistant", "All of them fail."))
    kept = memory.ask(talk(*more), says("assistant", "All of them pass."))
    assert {left.kind, kept.kind} == {Kind.UNKNOWN}
    memory.ask(talk(*more, kept.response, wanted), SUMMARY)
    memory.ask(talk(handed_on(), NEW), FINE)
    assert (left.kind, kept.kind) == (Kind.UNKNOWN, Kind.MAIN)
    assert (kept.said, begun.said) == ((NEW.content,), ("All of them",))


def test_an_agent_that_is_told_its_conversation_in_one_message_goes_on():
    """Another model wrote the summary, and the client sends the last messages with it, as OpenCode does."""
    memory = Memory()
    last = main_line(replay("hermes", memory))
    told = handed_on(written_out([*last.incoming.messages, last.response]))
    after = memory.ask(as_before(last, told), calls("terminal"))
    result = says("tool", "They fail.", tool_call_id=call_id(after.id, 0))
    more = memory.ask(as_before(last, told, after.response, result), FINE)
    memory.ask(as_before(last, told, after.response, result, FINE, NEW), FINE)
    assert (after.kind, more.kind) == (Kind.MAIN, Kind.MAIN)
    assert (after.next_state, more.next_state) == ((result,), (NEW,))

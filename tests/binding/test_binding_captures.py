"""Requests of real clients, bound: each turn's parent, the auxiliary turns, and the answers to each turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from afterwit.dialects.messages import parse_request as parse_messages_request
from afterwit.dialects.responses import parse_request
from afterwit.gateway.settings import GatewaySettings
from afterwit.judging.questions import reactions
from afterwit.turn import Conversation, Kind
from tests.binding.bindings import Memory, replay, says, talk, tree

TOOL_SAID = '{"output": "hello-from-tool", "exit_code": 0, "error": null}'
AGAIN = "Do it one more time please"


def test_hermes_grows_one_line_across_a_resume():
    rows = replay("hermes")
    assert tree(rows) == [("main", None, 0), ("main", 0, 0), ("main", 1, 0), ("main", 2, 0)]
    assert [row.said for row in rows] == [(TOOL_SAID,), (AGAIN,), (TOOL_SAID,), ()]


def test_hermes_background_review_is_beside_the_line_and_answers_nothing():
    """The order: greeting, tool result, review, title, review goes on, the person again, result, review."""
    rows = replay("hermes_review")
    assert tree(rows) == [
        ("main", None, 0),
        ("main", 0, 0),
        ("side", 1, 0),
        ("side", None, 0),
        ("side", 2, 0),
        ("main", 1, 0),
        ("main", 5, 0),
        ("side", 6, 0),
    ]
    assert rows[1].said == (AGAIN,)
    assert rows[6].said == ()


def test_hermes_delegating_goes_on_by_itself():
    rows = replay("hermes_delegates")
    assert tree(rows) == [("main", None, 0), ("main", 0, 0)]
    assert [message.role for message in rows[0].next_state] == ["tool"]


def test_openclaw_is_followed_through_temporary_messages_and_ids_without_underscores():
    rows = replay("openclaw")
    assert tree(rows) == [("main", None, 0), ("main", 0, 0), ("main", 1, 0), ("main", 2, 0)]
    stamped = "[Fri 2026-11-20 23:03 UTC] " + AGAIN
    assert [row.said for row in rows] == [("hello-from-tool",), (stamped,), ("hello-from-tool",), ()]


def test_opencode_title_shares_the_id_and_nothing_else():
    rows = replay("opencode")
    assert tree(rows) == [
        ("side", None, 0),
        ("main", None, 1),
        ("main", 1, 1),
        ("main", 2, 1),
        ("main", 3, 1),
    ]
    assert rows[2].said == (f'"{AGAIN}"',)


def test_opencode_after_its_compaction_is_a_new_segment_of_the_same_session():
    rows = replay("opencode_compaction")
    assert tree(rows) == [
        ("side", None, 0),
        ("main", None, 1),
        ("side", None, 1),
        ("main", None, 1),
        ("main", 3, 1),
    ]
    assert rows[2].next_state == rows[1].next_state == ()
    assert rows[3].said == ("hello-from-tool\n",)


def test_mini_swe_agent_complains_of_a_reply_that_it_deletes():
    """Even places call the tool; odd ones, and the ninth, are deleted with a complaint."""
    rows = replay("mini_swe_agent")
    assert tree(rows) == [
        ("main", None, 0),
        ("main", 0, 0),
        ("main", 0, 0),
        ("main", 2, 0),
        ("main", 2, 0),
        ("main", 4, 0),
        ("main", 4, 0),
        ("main", 6, 0),
        ("main", 6, 0),
        ("main", 6, 0),
    ]
    for row in rows[:-1]:
        (message,) = row.next_state
        if row.response.tool_calls:
            assert message.role == "tool"
        else:
            assert (message.role, (message.content or "")[:16]) == ("user", "Tool call error:")
    assert rows[-1].next_state == ()


def test_smolagents_is_followed_by_the_call_id_in_its_rewritten_text():
    rows = replay("smolagents")
    assert tree(rows) == [("main", None, 0), ("main", 0, 0), ("side", 1, 0)]
    assert rows[0].said == ("Observation:\nsunny",)
    assert rows[1].said == (), (
        "the last request has other instructions and no tools: its words are no reaction"
    )


def test_smolagents_code_is_followed_though_it_comes_back_with_its_closing_tag_and_as_a_call():
    """After the third failure it is answered in the agent's place, then the person goes on."""
    rows = replay("smolagents_code")
    assert tree(rows) == [
        ("main", None, 0),
        ("main", 0, 0),
        ("main", 1, 0),
        ("main", 2, 0),
        ("side", 3, 0),
        ("main", 3, 0),
    ]
    assert rows[0].said == ("Observation:\nExecution logs:\nhello\nLast output from code snippet:\nNone",)
    assert {len(row.said) for row in rows[:4]} == {1}
    assert (rows[3].said[0] or "").endswith("New task:\nCODEAGENT again")


def test_openai_agents_hand_a_conversation_on():
    rows = replay("openai_agents")
    assert tree(rows) == [("main", None, 0), ("main", 0, 0)]
    assert rows[0].said == ('{"assistant": "B"}',)


def test_litellm_asking_again_without_tools_is_beside_the_line():
    rows = replay("litellm")
    assert tree(rows) == [("main", None, 0), ("main", 0, 0), ("side", 0, 0)]
    assert rows[0].said == ("sunny",)


def test_the_openai_sdk_asking_the_first_prompt_again_begins_a_new_session():
    rows = replay("openai_sdk")
    assert tree(rows) == [("main", None, 0), ("main", 0, 0), ("main", None, 2)]
    assert [row.said for row in rows] == [("sunny",), (), ()]


def test_aider_is_followed_through_files_and_reminders_that_move():
    """Edited, committed, explained, edited, committed, judged; then resumed without the commits."""
    assert tree(replay("aider")) == [("main", None, 0)]
    rows = replay("aider_edits")
    assert tree(rows) == [
        ("main", None, 0),
        ("side", None, 1),
        ("main", 0, 0),
        ("main", 2, 0),
        ("side", None, 4),
        ("main", 3, 0),
        ("unknown", 0, 0),
    ]
    committed = "I committed the changes with git hash {} & commit msg: feat: print two"
    said = [tuple(message.content for message in reactions(row.next_state)) for row in rows]
    assert said[0] == (committed.format("5fa2224"), "Thanks, now explain it")
    assert said[2] == ("Change a.py again",)
    assert said[3] == (committed.format("faa29b1"), "Is it good?")
    assert said[5] == said[6] == ()


def test_a_person_who_complains_after_aiders_editor_answers_its_architect():
    memory = Memory()
    asked = (says("system", "Provide direction to your editor engineer."), says("user", "Make it faster."))
    first = memory.ask(talk(*asked), says("assistant", "Drop the loop."))
    told = (says("user", "I made those changes to the files."), says("assistant", "Ok."))
    memory.ask(
        talk(*asked, first.response, *told, says("user", "No, keep the loop.")),
        says("assistant", "It stays."),
    )
    assert first.said == ("I made those changes to the files.", "No, keep the loop.")


def test_gptme_tells_what_came_of_a_command_in_a_message_of_the_system():
    """The order: a command, the title, another command, done; thanks; a complaint, a command, done."""
    rows = replay("gptme")
    assert tree(rows) == [
        ("main", None, 0),
        ("side", None, 0),
        ("main", 0, 0),
        ("main", 2, 0),
        ("main", 3, 0),
        ("main", 4, 0),
        ("main", 5, 0),
    ]
    assert [[message.role for message in row.next_state] for row in rows] == [
        ["tool"],
        [],
        ["tool"],
        ["user"],
        ["user"],
        ["tool"],
        [],
    ]
    assert rows[0].said == ("Ran command: `echo plum > note.txt; echo kept it`\n\n`kept it`\n\n",)


def test_copilots_line_goes_on_through_compactions_that_it_asks_for_beside_it():
    """Each compaction's request follows the last reply, with all tools; the line keeps the last messages."""
    rows = replay("copilot_compaction")
    assert [(kind, session) for kind, _, session in tree(rows)] == [
        ("side" if place in (2, 5, 6) else "main", 0) for place in range(10)
    ]
    line = [row for row in rows if row.kind is Kind.MAIN]
    assert [row.binding.parent for row in line] == [None, *(row.id for row in line[:-1])]
    asked = [text for row in line for text in row.said if "task-" in (text or "")]
    assert [(text or "").split("\n")[-1] for text in asked] == [
        "Thanks. Now task-B",
        "No, that is wrong. Now task-C",
        "Let somebody do task-D",
    ]


def anthropic(body: dict[str, Any]) -> Conversation:
    """A reply is read before a message of the user: at the end it would be the beginning of a response."""
    tools = [{"name": tool["function"]["name"]} for tool in body["tools"]]
    said = [*body["messages"], {"role": "user", "content": "."}]
    limits = GatewaySettings().request_limits
    read = parse_messages_request({**body, "messages": said, "tools": tools}, limits).conversation
    return replace(read, messages=read.messages[:-1])


def test_anthropics_clients_are_followed_as_well():
    rows = replay("openclaw_messages", parse=anthropic)
    assert tree(rows) == [("main", index - 1 if index else None, 0) for index in range(len(rows))]
    assert {row.said for row in rows[:-1]} == {("hello-from-tool",)}
    rows = replay("anthropic_sdk", parse=anthropic)
    assert tree(rows) == [("main", None, 0), ("main", 0, 0), ("main", None, 2)]


def responses(body: dict[str, Any]) -> Conversation:
    items = [item for one in body["messages"] for item in (one if isinstance(one, list) else [one])]
    return parse_request({"input": items}, GatewaySettings().request_limits).conversation


def test_codex_grows_one_line_and_goes_on_in_its_session_behind_a_compaction():
    """The order: a tool call, its result, the compaction, the person again with the summary."""
    rows = replay("codex", parse=responses)
    assert tree(rows) == [("main", None, 0), ("main", 0, 0), ("side", 1, 0), ("main", None, 0)]
    (result,) = rows[0].said
    assert result is not None
    assert result.endswith("hello-from-tool\n")
    assert rows[1].said == ("Thanks, good",)


def test_claude_code_is_followed_through_reminders_and_a_resume():
    rows = replay("claude_code", parse=anthropic)
    assert tree(rows) == [("main", None, 0), ("main", 0, 0), ("main", 1, 0), ("main", 2, 0)]
    assert [row.said for row in rows] == [("hello-from-tool",), (AGAIN,), ("hello-from-tool",), ()]


def test_all_clients_at_once_in_one_scope_stay_apart():
    names = ["hermes", "openclaw", "opencode", "mini_swe_agent", "smolagents", "litellm"]
    names += ["smolagents_code", "openai_agents", "aider_edits"]
    alone = {name: tree(replay(name)) for name in names}
    memory = Memory()
    assert {name: tree(replay(name, memory)) for name in names} == alone
    assert {row.kind for row in memory} == set(Kind) - {Kind.PRACTICE}

"""Anthropic's dialect through the whole gateway: recorded, bound and answered like any other."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from afterwit.chat_format.render import Renderer
from afterwit.gateway.settings import GatewaySettings
from afterwit.lifecycle import State
from afterwit.turn import Finish, Message, turn_of_call
from tests.binding.bindings import recorded
from tests.gateway.serving import TOOL, USER, Serving, serving

READ = {
    "name": TOOL["function"]["name"],
    "description": TOOL["function"]["description"],
    "input_schema": TOOL["function"]["parameters"],
}
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "notes/todo.txt"}}\n</tool_call>'
THOUGHT = "<think>\nWhich file?\n</think>\n\n"
THINKING = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
CACHED = {"cache_control": {"type": "ephemeral"}}
REMINDER = {"type": "text", "text": "<system-reminder>\nThe list is empty.\n</system-reminder>"}


async def ask(gateway: Serving, messages: Any = USER, **more: Any) -> httpx.Response:
    body = {"model": "tiny", "max_tokens": 500, "messages": messages, **more}
    return await gateway.http.post("/messages?beta=true", json=body)


async def events(gateway: Serving, messages: Any = USER, **more: Any) -> list[dict[str, Any]]:
    """The objects of a stream."""
    answer = await ask(gateway, messages, stream=True, **more)
    assert answer.status_code == 200, answer.text
    lines = answer.text.splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


def error_of(answer: httpx.Response) -> tuple[int, str]:
    body = answer.json()
    assert set(body) == {"type", "error"}
    assert body["type"] == "error"
    assert set(body["error"]) == {"type", "message"}
    return answer.status_code, body["error"]["type"]


def replied(answer: httpx.Response) -> dict[str, Any]:
    return {"role": "assistant", "content": answer.json()["content"]}


def results(answer: httpx.Response, *texts: str) -> list[dict[str, Any]]:
    calls = [block for block in answer.json()["content"] if block["type"] == "tool_use"]
    return [
        {"type": "tool_result", "tool_use_id": call["id"], "content": text}
        for call, text in zip(calls, texts, strict=True)
    ]


@pytest.mark.parametrize(
    "asked", [{}, THINKING, {"stop_sequences": ["there", "look"]}, {"max_tokens": 3}], ids=str
)
async def test_a_stream_adds_up_to_the_body(gateway: Serving, asked: dict[str, Any]):
    for said in ("Hello there.", "", THOUGHT + "This one.", f"Let me look.\n{CALL}\n{CALL}", THOUGHT + CALL):
        gateway.says[:] = [said]
        body = (await ask(gateway, tools=[READ], **asked)).json()
        streamed = await events(gateway, tools=[READ], **asked)
        kinds = [e["content_block"]["type"] for e in streamed if e["type"] == "content_block_start"]
        pieces = [e["delta"].get("text", "") for e in streamed if e["type"] == "content_block_delta"]
        assert kinds == [block["type"] for block in body["content"]]
        assert "".join(pieces) == "".join(block.get("text", "") for block in body["content"])
        ended = streamed[-2]
        assert ended["delta"] == {name: body[name] for name in ("stop_reason", "stop_sequence")}
        assert ended["usage"] == body["usage"]


async def test_text_leaves_token_by_token_while_the_engine_is_still_sampling(gateway: Serving):
    gateway.engine.pause_after = 3
    body = {"model": "tiny", "max_tokens": 50, "messages": USER, "stream": True}
    async with gateway.http.stream("POST", "/messages", json=body) as answer:
        lines = answer.aiter_lines()
        async for line in lines:
            if "text_delta" in line:
                break
        await gateway.engine.paused.wait()
        gateway.engine.resume.set()
        assert "message_stop" in "".join([line async for line in lines])


async def test_a_record_is_in_the_store_before_the_streams_last_events_leave(gateway: Serving):
    found = 0
    body = {"model": "tiny", "max_tokens": 50, "messages": USER, "stream": True}
    async with gateway.http.stream("POST", "/messages", json=body) as answer:
        async for line in answer.aiter_lines():
            if "message_delta" in line and not found:
                found = len(await gateway.records())
    assert found == 1


async def test_the_same_conversation_has_the_same_prompt_in_both_dialects(gateway: Serving):
    """Each dialect with the ids that its own first answer gave: the third prompts are the same."""
    gateway.says[:] = [THOUGHT + f"Let me look.\n{CALL}\n{CALL}"]
    system = "Be brief."
    chat = [{"role": "system", "content": system}, *USER]
    first = (await gateway.ask(chat, tools=[TOOL])).json()["choices"][0]["message"]
    answers = [
        {"role": "tool", "tool_call_id": call["id"], "content": "milk"} for call in first["tool_calls"]
    ]
    await gateway.ask([*chat, first, *answers], tools=[TOOL])
    own = await ask(gateway, system=system, tools=[READ], **THINKING)
    said = [*USER, replied(own), {"role": "user", "content": results(own, "milk", "milk")}]
    await ask(gateway, said, system=system, tools=[READ], **THINKING)
    one, other, third, fourth = (record.turn for record in await gateway.records())
    assert one.prompt_ids == third.prompt_ids
    assert other.prompt_ids == fourth.prompt_ids
    assert (other.parent, fourth.parent) == (one.id, third.id)


async def test_a_thread_goes_on_from_the_store(gateway: Serving):
    """As if the client had sent the whole conversation."""
    gateway.says[:] = [THOUGHT + f"Let me look.\n{CALL}", "Buy milk.", "Bye.", "Buy milk."]
    said = {"system": "Be brief.", "tools": [READ], **THINKING}
    first = await ask(gateway, thread={"type": "create"}, **said)
    read = {"role": "user", "content": results(first, "milk")}

    def thread(answer: httpx.Response) -> dict[str, str]:
        return {"type": "continue", "previous_message_id": answer.json()["id"]}

    second = await ask(gateway, [read], thread=thread(first), **THINKING)
    await ask(gateway, [{"role": "user", "content": "Thanks."}], thread=thread(second))
    counted = {"model": "tiny", "messages": [read], "thread": thread(first), **THINKING}
    tokens = (await gateway.http.post("/messages/count_tokens", json=counted)).json()
    one, two, three = (record.turn for record in await gateway.records())
    assert (two.parent, three.parent) == (one.id, two.id)
    assert (two.conversation.tools, three.conversation.messages[0].content) == (
        one.conversation.tools,
        "Be brief.",
    )
    assert three.conversation.messages[-2:] == (two.message, Message(role="user", content="Thanks."))
    assert tokens == {"input_tokens": len(two.prompt_ids)}
    await ask(gateway, [*USER, replied(first), read], **said)
    *_, whole = await gateway.records()
    assert whole.turn.prompt_ids == two.prompt_ids


async def test_a_thread_that_is_not_there_is_refused_in_the_words_on_which_clients_send_it_whole(
    gateway: Serving,
):
    ann, bob = await gateway.add_key("ann", "chat", "teach"), await gateway.add_key("bob", "chat", "admin")
    gateway.http.headers["authorization"] = f"Bearer {ann}"
    made = (await ask(gateway)).json()["id"]
    gateway.http.headers["authorization"] = f"Bearer {bob}"
    for name in (made, "msg_" + "0" * 26, None):
        refused = await ask(gateway, thread={"type": "continue", "previous_message_id": name})
        error = refused.json()["error"]
        assert (refused.status_code, error["type"]) == (404, "not_found_error")
        assert error["details"] == {"error_code": "thread_not_found"}


@pytest.mark.parametrize("more", [{"system": "Be brief."}, {"tools": [READ]}, {"thread": {"type": "fork"}}])
async def test_a_thread_keeps_its_system_text_and_its_tools(gateway: Serving, more: dict[str, Any]):
    made = (await ask(gateway)).json()["id"]
    asked = {"thread": {"type": "continue", "previous_message_id": made}} | more
    assert error_of(await ask(gateway, **asked)) == (400, "invalid_request_error")


async def test_a_conversation_is_followed_through_what_clients_change_in_it(gateway: Serving):
    """Marks that move, reminders that come and go, thought that is dropped: one line, true next states."""
    gateway.says[:] = [THOUGHT + f"Let me look.\n{CALL}", "Milk.", "No eggs."]
    system = [{"type": "text", "text": "x-anthropic-billing-header: cch=1;"}, {"type": "text", "text": "Go."}]
    asked = {"role": "user", "content": [{"type": "text", "text": "Open it."} | CACHED]}
    first = await ask(gateway, [asked], system=system, tools=[READ], **THINKING)
    system[0] = {"type": "text", "text": "x-anthropic-billing-header: cch=2;"}
    read = results(first, "milk")
    history = [*USER, replied(first), {"role": "user", "content": [read[0] | CACHED, REMINDER]}]
    second = await ask(gateway, history, system=system, tools=[READ], **THINKING)
    unthought = [block for block in replied(first)["content"] if block["type"] != "thinking"]
    history = [
        *(
            {"role": "user", "content": [REMINDER, *asked["content"]]},
            replied(first) | {"content": unthought},
        ),
        {"role": "user", "content": read},
        *(
            replied(second),
            {"role": "user", "content": [{"type": "text", "text": "And eggs?"} | CACHED, REMINDER]},
        ),
    ]
    await ask(gateway, history, system=system, tools=[READ], **THINKING)
    one, other, last = await gateway.records()
    assert (other.turn.parent, last.turn.parent) == (one.turn.id, other.turn.id)
    assert {record.turn.session for record in (one, other, last)} == {one.turn.session}
    assert [record.state for record in (one, other, last)] == [State.ANSWERED, State.ANSWERED, State.OPEN]
    assert one.next_state is not None
    assert [(message.role, message.content) for message in one.next_state.messages] == [("tool", "milk")]
    assert other.next_state is not None
    assert [message.role for message in other.next_state.messages] == ["user"]


@pytest.mark.parametrize(
    ("name", "roots"), [("openclaw_messages", {0}), ("claude_code", {0}), ("anthropic_sdk", {0, 2})]
)
async def test_a_recorded_client_is_bound_through_the_gateway(gateway: Serving, name: str, roots: set[int]):
    """The model repeats its recorded answers; our ids replace the recorded ones."""
    ours: dict[str, str] = {}
    for request in recorded(name):
        text = json.dumps(request["messages"])
        for then, now in ours.items():
            text = text.replace(then, now)
        gateway.says[:] = [spoken(request["response"]["content"])]
        body = {
            "model": "tiny",
            "messages": json.loads(text),
            "tools": [{"name": tool, "input_schema": {"type": "object"}} for tool in request["tools"]],
            **THINKING,
        }
        answer = await gateway.http.post("/messages", json=body, headers=request["headers"])
        calls = (b["id"] for b in answer.json()["content"] if b["type"] == "tool_use")
        ours |= zip((b["id"] for b in request["response"]["content"] if "id" in b), calls, strict=True)
    turns = [record.turn for record in await gateway.records()]
    line = [None if place in roots else turns[place - 1].id for place in range(len(turns))]
    assert [turn.parent for turn in turns] == line


def spoken(blocks: list[dict[str, Any]]) -> str:
    """The model's text for these blocks."""
    forms = {
        "thinking": lambda b: f"<think>\n{b['thinking']}\n</think>\n\n",
        "text": lambda b: b["text"],
        "tool_use": lambda b: (
            "\n<tool_call>\n" + json.dumps({"name": b["name"], "arguments": b["input"]}) + "\n</tool_call>"
        ),
    }
    return "".join(forms[block["type"]](block) for block in blocks)


async def test_the_response_and_its_calls_lead_back_to_the_turn(gateway: Serving):
    gateway.says[:] = [CALL + CALL]
    answer = await ask(gateway, tools=[READ])
    turn = answer.headers["x-afterwit-turn"]
    body = answer.json()
    ids = [block["id"] for block in body["content"]]
    assert body["id"] == "msg_" + turn
    assert len(set(ids)) == 2
    assert all(id.startswith("toolu") and id.isalnum() and turn_of_call(id) == turn for id in ids)
    await gateway.app.in_flight.idle()
    given = await gateway.http.post(
        "/feedback", json={"response_id": body["id"], "thumb": "up"}, headers=gateway.owner
    )
    assert (given.status_code, given.json()["turn"]) == (200, turn)


async def test_only_one_call_is_made_if_parallel_ones_are_switched_off(gateway: Serving):
    gateway.says[:] = [CALL + CALL]
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    answer = await ask(gateway, tools=[READ], tool_choice=choice)
    assert len(answer.json()["content"]) == 1


async def test_thought_is_a_block_if_asked_for_and_never_in_the_text(gateway: Serving):
    gateway.says[:] = [THOUGHT + "This one."]
    thought, text = (await ask(gateway, **THINKING)).json()["content"]
    assert (thought["type"], thought["thinking"], text["text"]) == ("thinking", "Which file?", "This one.")
    (alone,) = (await ask(gateway)).json()["content"]
    assert alone == text
    for record in await gateway.records():
        assert record.turn.message.reasoning == "Which file?"


async def test_a_limit_beyond_the_context_is_cut_to_what_fits(gateway: Serving):
    assert (await ask(gateway, max_tokens=10**6)).status_code == 200
    (record,) = await gateway.records()
    room = gateway.engine.facts.context_length - len(record.turn.prompt_ids)
    assert record.turn.sampling.max_tokens == room


async def test_a_metadata_user_partitions_sessions(gateway: Serving):
    """The same conversation under two session ids of Claude Code is two conversations."""
    answers = []
    for session in ("1", "2"):
        user = json.dumps({"device_id": "d" * 300, "session_id": session})
        answers.append(await ask(gateway, metadata={"user_id": user}))
        said = [*USER, replied(answers[-1]), {"role": "user", "content": "And?"}]
        answers.append(await ask(gateway, said, metadata={"user_id": user}))
    sessions = [answer.headers["x-afterwit-session"] for answer in answers]
    assert sessions[0] == sessions[1] != sessions[2] == sessions[3]


async def test_tokens_are_counted_as_they_are_sampled_from_and_nothing_is_recorded(gateway: Serving):
    body = {"model": "tiny", "messages": USER, "system": "Be brief.", "tools": [READ]}
    counted = await gateway.http.post("/messages/count_tokens?beta=true", json=body)
    assert (await gateway.records(), gateway.engine.asked) == ([], [])
    usage = (await ask(gateway, system="Be brief.", tools=[READ])).json()["usage"]
    assert counted.json() == {"input_tokens": usage["input_tokens"]}
    ending = {"model": "tiny", "messages": [*USER, {"role": "assistant", "content": "The"}]}
    assert (await gateway.http.post("/messages/count_tokens", json=ending)).status_code == 200


async def test_errors_of_every_layer_have_anthropics_form_and_an_id(tmp_path: Path, renderer: Renderer):
    settings = GatewaySettings(max_requests=1, max_body_bytes=50_000)
    async with serving(tmp_path, renderer, settings=settings) as gateway:
        refused = await ask(gateway, 3)
        assert error_of(refused) == (400, "invalid_request_error")
        assert refused.headers["request-id"].startswith("req_")
        assert (await ask(gateway)).headers["request-id"] != refused.headers["request-id"]
        await gateway.app.in_flight.idle()
        assert error_of(await ask(gateway, model="claude-9")) == (404, "not_found_error")
        long = await ask(gateway, [{"role": "user", "content": "long " * 4000}])
        assert error_of(long) == (400, "invalid_request_error")
        assert long.json()["error"]["message"].startswith("prompt is too long")
        counting = await gateway.http.post("/messages/count_tokens", json={"model": "tiny"})
        assert error_of(counting) == (400, "invalid_request_error")
        assert error_of(await gateway.http.post("/messages", content=b"{")) == (400, "invalid_request_error")
        assert error_of(await ask(gateway, "x" * 60_000)) == (413, "request_too_large")
        assert error_of(await gateway.http.get("/messages")) == (405, "invalid_request_error")
        assert error_of(await gateway.http.post("/messages/batches", json={})) == (404, "not_found_error")
        gateway.engine.pause_after = 0
        running = asyncio.ensure_future(ask(gateway))
        await gateway.engine.paused.wait()
        busy = await ask(gateway)
        assert error_of(busy) == (429, "rate_limit_error")
        assert busy.headers["retry-after"]
        gateway.engine.resume.set()
        await running
        await gateway.app.in_flight.idle()
        gateway.engine.pause_after, gateway.engine.fail_after = None, 0
        assert error_of(await ask(gateway)) == (500, "api_error")
        gateway.engine.fail_after = 3
        last = (await events(gateway))[-1]
        assert (last["type"], last["error"]["type"]) == ("error", "api_error")


async def test_errors_at_paths_of_no_dialect_have_the_form_of_a_client_that_names_its_api(gateway: Serving):
    named = {"anthropic-version": "2023-06-01"}
    for path in ("/models/claude-9", "/nothing"):
        assert error_of(await gateway.http.get(path, headers=named)) == (404, "not_found_error")
        assert "type" not in (await gateway.http.get(path)).json()
    elsewhere = await gateway.http.post("/chat/completions", json={}, headers=named)
    assert "type" not in elsewhere.json()


async def test_a_key_comes_as_a_bearer_or_as_x_api_key(gateway: Serving):
    key = await gateway.add_key("ann", "chat")
    body = {"model": "tiny", "messages": USER}
    for headers, status in (
        ({"x-api-key": key, "anthropic-version": "2023-06-01"}, 200),
        ({"authorization": f"Bearer {key}"}, 200),
        ({"x-api-key": "wrong"}, 401),
        ({}, 401),
    ):
        answer = await gateway.http.post("/messages", json=body, headers=headers)
        assert answer.status_code == status
        counted = await gateway.http.post("/messages/count_tokens", json=body, headers=headers)
        assert counted.status_code == status
    assert error_of(answer) == (401, "authentication_error")
    reader = await gateway.add_key("bob", "read")
    for path in ("/messages", "/messages/count_tokens"):
        refused = await gateway.http.post(path, json=body, headers={"x-api-key": reader})
        assert error_of(refused) == (403, "permission_error")


async def test_another_keys_call_ids_lead_nowhere(gateway: Serving):
    ann, bob = await gateway.add_key("ann", "chat"), await gateway.add_key("bob", "chat")
    gateway.says[:] = [CALL]
    body = {"model": "tiny", "messages": USER, "tools": [READ]}
    first = await gateway.http.post("/messages", json=body, headers={"x-api-key": ann})
    said = [*USER, replied(first), {"role": "user", "content": results(first, "milk")}]
    await gateway.http.post("/messages", json=body | {"messages": said}, headers={"x-api-key": bob})
    one, other = await gateway.records()
    assert (other.turn.parent, other.turn.session == one.turn.session) == (None, False)
    assert one.next_state is None


async def test_a_client_that_leaves_cancels_the_engine(gateway: Serving):
    gateway.engine.pause_after = 3
    body = {"model": "tiny", "messages": USER, "stream": True}
    async with gateway.http.stream("POST", "/messages", json=body) as answer:
        await anext(answer.aiter_lines())
        await gateway.engine.paused.wait()
    await gateway.app.in_flight.idle()
    (record,) = await gateway.records()
    assert record.turn.finish is Finish.CLIENT_LEFT

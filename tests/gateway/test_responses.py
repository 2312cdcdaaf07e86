"""The Responses API over a real socket: a stream and a body hold the same, and sessions are chat's."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from afterwit.chat_format.render import Renderer
from afterwit.errors import EngineUnavailable
from afterwit.gateway.settings import GatewaySettings
from afterwit.lifecycle import State
from afterwit.turn import Conversation, Kind, turn_of_call
from tests.gateway.responding import CALL, FUNCTION, THOUGHT, events, folded, parse_events, respond
from tests.gateway.serving import TOOL, Serving, serving
from tests.products import some

SAYINGS = (
    "Hello there.",
    "",
    "naïve 東京 👩‍🚀 done",
    THOUGHT + "This one.",
    THOUGHT,
    CALL,
    f"Let me look.\n{CALL}\nAnd there.\n{CALL}",
    THOUGHT + CALL,
    '<tool_call>\n{"name": "read", "argu',
)
ASKED: dict[str, dict[str, Any]] = {
    "plain": {},
    "few tokens": {"max_output_tokens": 3},
    "one call": {"parallel_tool_calls": False},
    "log-probs": {"include": ["message.output_text.logprobs"]},
}


@pytest.mark.parametrize("asked", some(2, ASKED.values()), ids=ASKED)
async def test_a_stream_adds_up_to_the_body_and_to_the_stored_response(gateway: Serving, asked: dict):
    for said in SAYINGS:
        gateway.says[:] = [said]
        body = (await respond(gateway, tools=[FUNCTION], **asked)).json()
        read = await events(gateway, tools=[FUNCTION], **asked)
        last = read[-1]
        assert last["type"] == f"response.{last['response']['status']}"
        assert folded(read) == last["response"]["output"]
        assert without_ids(last["response"]) == without_ids(body)


async def test_a_call_of_a_grouped_tool_names_its_group_and_is_found_again(gateway: Serving):
    """Codex runs the tool of an MCP server only if the call names both."""
    tools = [{"type": "namespace", "name": "mcp__files", "description": "Files.", "tools": [FUNCTION]}]
    gateway.says[:] = [CALL.replace('"read"', '"mcp__files__read"'), "Done."]
    read = await events(gateway, tools=tools)
    (call,) = folded(read)
    assert read[-1]["response"]["output"] == [call]
    assert (call["namespace"], call["name"]) == ("mcp__files", "read")
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "milk"}
    await respond(gateway, [{"role": "user", "content": "Open it."}, call, result], tools=tools)
    before, after = await gateway.records()
    assert (after.turn.parent, before.next_state.messages[0].content) == (before.turn.id, "milk")
    assert after.turn.conversation.messages[1].tool_calls == before.turn.message.tool_calls


def without_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [without_ids(inner) for inner in value]
    if isinstance(value, dict):
        own = ("id", "call_id", "encrypted_content")
        return {name: without_ids(inner) for name, inner in value.items() if name not in own}
    return value


async def test_the_events_of_a_response_come_in_order(gateway: Serving):
    gateway.says[:] = [f"{THOUGHT}Hi\n{CALL}"]
    kinds = [event["type"] for event in await events(gateway, tools=[FUNCTION])]
    assert [kind.removeprefix("response.") for kind in dict.fromkeys(kinds)] == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "completed",
    ]
    assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done") == 3


async def test_text_leaves_token_by_token_while_the_engine_is_still_sampling(gateway: Serving):
    gateway.engine.pause_after = 3
    body = {"model": "tiny", "input": "Open it.", "stream": True}
    async with gateway.http.stream("POST", "/responses", json=body) as answer:
        lines = answer.aiter_lines()
        seen = ""
        while seen.count("event: response.output_text.delta") < 3:
            seen += await anext(lines)
        await gateway.engine.paused.wait()
        gateway.engine.resume.set()
        rest = "".join([line async for line in lines])
    assert "response.completed" in rest


async def test_a_cut_response_is_incomplete_and_says_why(gateway: Serving):
    last = (await events(gateway, max_output_tokens=2))[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last["response"]["output"][0]["status"] == "incomplete"
    whole = (await respond(gateway, max_output_tokens=2)).json()
    assert (whole["status"], whole["output"][0]["status"]) == ("incomplete", "incomplete")


async def test_calls_have_ids_that_lead_back_to_their_turn(gateway: Serving):
    gateway.says[:] = [f"{CALL}{CALL}"]
    answer = await respond(gateway, tools=[FUNCTION])
    calls = answer.json()["output"]
    turn = answer.headers["x-afterwit-turn"]
    assert answer.json()["id"] == f"resp_{turn}"
    assert [call["type"] for call in calls] == ["function_call", "function_call"]
    ids = [call["call_id"] for call in calls]
    assert len(set(ids)) == 2
    assert [turn_of_call(id) for id in ids] == [turn, turn]


async def test_openclaw_keeps_the_ids_of_calls_and_ids_that_it_rewrote_are_read_as_ours(gateway: Serving):
    gateway.says[:] = [CALL, "Buy milk."]
    (call,) = (await respond(gateway, tools=[FUNCTION])).json()["output"]
    assert re.fullmatch(r"call_[A-Za-z0-9_-]{1,59}", call["call_id"]), "it replaces any other"
    rewritten = f"call_{call['call_id'].replace('_', '')}_{call['id'][:15]}_aeb74d2422"
    result = {"type": "function_call_output", "call_id": rewritten, "output": "milk"}
    await respond(
        gateway,
        [{"role": "user", "content": "Open it."}, {**call, "call_id": rewritten, "id": "fc_x"}, result],
        tools=[FUNCTION],
    )
    asked, answered = await gateway.records()
    assert answered.turn.parent == asked.turn.id
    assert asked.next_state.messages[0].tool_call_id == asked.turn.message.tool_calls[0].id


async def test_usage_counts_what_the_engine_was_given_and_gave(gateway: Serving):
    usage = (await events(gateway))[-1]["response"]["usage"]
    (record,) = await gateway.records()
    assert usage["input_tokens"] == len(record.turn.prompt_ids)
    assert usage["output_tokens"] == len(record.turn.sampled.ids)
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


async def test_the_token_limit_is_cut_to_what_fits_and_never_refused(gateway: Serving):
    answer = await respond(gateway, max_output_tokens=65536)
    assert answer.json()["max_output_tokens"] == 65536
    asked = gateway.engine.asked[0]
    assert asked.sampling.max_tokens == 2048 - len(asked.prompt_ids)


async def test_a_response_repeats_what_was_asked(gateway: Serving):
    asked = {
        "metadata": {"a": "b"},
        "instructions": "Be brief.",
        "store": False,
        "tools": [{"type": "custom"}],
    }
    for response in (
        (await respond(gateway, **asked)).json(),
        (await events(gateway, **asked))[0]["response"],
    ):
        assert {name: response[name] for name in asked} == asked
        assert response["tool_choice"] == "auto"


async def test_errors_have_openais_form_and_this_dialects_field_names(gateway: Serving):
    answer = await respond(gateway, "long " * 3000, stream=True)
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert (error["code"], error["param"]) == ("context_length_exceeded", "input")
    assert (await respond(gateway, model="gpt-9")).json()["error"]["code"] == "model_not_found"
    gateway.engine.fail_after, gateway.engine.error = 0, EngineUnavailable("gone")
    assert (await respond(gateway)).status_code == 502
    root = await gateway.http.delete("/responses/resp_1")
    assert (root.status_code, root.json()["error"]["code"]) == (405, "method_not_allowed")


async def test_a_route_that_is_not_served_is_not_taken_for_a_response(gateway: Serving):
    for path in ("/responses/compact", "/responses/resp_1/cancel", "/conversations"):
        answer = await gateway.http.post(path, json={})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_route")


async def test_a_fault_in_a_stream_is_an_error_event_and_a_failed_response(gateway: Serving):
    gateway.engine.fail_after = 3
    answer = await respond(gateway, stream=True)
    *_, error, failed = parse_events(answer.text)
    assert (error["type"], error["code"]) == ("error", "engine_failed")
    assert failed["type"] == "response.failed"
    assert (failed["response"]["status"], failed["response"]["error"]["code"]) == ("failed", "server_error")


async def test_weights_that_change_in_a_stream_disturb_no_client(gateway: Serving):
    gateway.engine.pause_after = 2
    running = asyncio.ensure_future(events(gateway))
    await gateway.engine.paused.wait()
    gateway.engine.version += 1
    gateway.engine.resume.set()
    assert (await running)[-1]["type"] == "response.completed"


def reply(output: list[dict], *drop: str) -> list[dict]:
    """The output as a client sends it back."""
    return [item for item in output if item["type"] not in drop]


@pytest.mark.parametrize("dropped", [(), ("reasoning",)], ids=["echoed", "thought dropped"])
async def test_a_session_is_bound_as_in_chat_and_has_the_same_prompts(
    tmp_path: Path, renderer: Renderer, dropped: tuple[str, ...]
):
    says = [f"{THOUGHT}Let me look.\n{CALL}\n{CALL}", "Buy milk.", "Bye."]
    (tmp_path / "chat").mkdir()
    async with serving(tmp_path / "chat", renderer) as chat, serving(tmp_path, renderer) as gateway:
        chat.says[:], gateway.says[:] = says, says
        messages: list[dict] = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Milk?"},
        ]
        items: list[dict] = [{"role": "user", "content": [{"type": "input_text", "text": "Milk?"}]}]
        for follow in ("the notes", "Thanks."):
            said = (await chat.ask(messages, tools=[TOOL])).json()["choices"][0]["message"]
            if dropped:
                said.pop("reasoning_content", None)
            output = (await respond(gateway, items, instructions="Be brief.", tools=[FUNCTION])).json()[
                "output"
            ]
            messages.append(said)
            items += reply(output, *dropped)
            calls = [item["call_id"] for item in output if item["type"] == "function_call"]
            items += [{"type": "function_call_output", "call_id": call, "output": follow} for call in calls]
            messages += [
                {"role": "tool", "tool_call_id": call["id"], "content": follow}
                for call in said.get("tool_calls", ())
            ]
            if not calls:
                messages.append({"role": "user", "content": follow})
                items.append({"role": "user", "content": follow})
        await chat.ask(messages, tools=[TOOL])
        await respond(gateway, items, instructions="Be brief.", tools=[FUNCTION])
        expected, records = await chat.records(), await gateway.records()
    assert [record.turn.prompt_ids for record in records] == [record.turn.prompt_ids for record in expected]
    for one, other in zip(expected, records, strict=True):
        assert (one.turn.parent, one.turn.session, one.state) == (
            other.turn.parent,
            other.turn.session,
            other.state,
        )
        assert one.next_state == other.next_state
    assert [record.state for record in records] == [State.ANSWERED, State.ANSWERED, State.OPEN]


async def test_a_previous_response_is_continued_from_the_store(gateway: Serving):
    gateway.says[:] = [f"Let me look.\n{CALL}", "Buy milk.", "Bye."]
    first = (await respond(gateway, tools=[FUNCTION], instructions="Old.")).json()
    result = {"type": "function_call_output", "call_id": first["output"][1]["call_id"], "output": "milk"}
    second = await respond(
        gateway, [result], tools=[FUNCTION], instructions="New.", previous_response_id=first["id"]
    )
    assert second.json()["previous_response_id"] == first["id"]
    await respond(gateway, "Thanks.", tools=[FUNCTION], previous_response_id=second.json()["id"])
    one, two, three = await gateway.records()
    assert [message.content for message in two.turn.conversation.messages] == [
        "New.",
        "Open it.",
        "Let me look.",
        "milk",
    ]
    assert [message.role for message in three.turn.conversation.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert (one.turn.id, two.turn.id) == (two.turn.parent, three.turn.parent)
    assert two.next_state is not None
    assert [message.content for message in two.next_state.messages] == ["Thanks."]


class WatchedRenderer(Renderer):
    """Notes whether a conversation is rendered in the thread of the event loop."""

    on_loop: list[bool]

    def text(self, conversation: Conversation) -> str:
        self.on_loop.append(threading.current_thread() is threading.main_thread())
        return super().text(conversation)


async def test_a_short_request_that_continues_a_long_conversation_is_rendered_off_the_loop(
    tmp_path: Path, model: Path
):
    renderer = WatchedRenderer.load(model)
    renderer.on_loop = []
    settings = GatewaySettings(thread_from_bytes=2000)
    async with serving(tmp_path, renderer, settings=settings) as gateway:
        long = (await respond(gateway, "a " * 1000)).json()
        await respond(gateway, "Thanks.", previous_response_id=long["id"])
        counted = {"model": "tiny", "input": "Thanks.", "previous_response_id": long["id"]}
        await gateway.http.post("/responses/input_tokens", json=counted)
        await respond(gateway, "Thanks.")
    assert renderer.on_loop == [False, False, False, True]


async def test_the_named_response_is_the_parent_of_equal_conversations(gateway: Serving):
    """Without the name both sessions could be the one that goes on."""
    first = (await respond(gateway)).json()
    second = (await respond(gateway)).json()
    await respond(gateway, "On.", previous_response_id=first["id"])
    *_, last = await gateway.records()
    assert (last.turn.parent, last.turn.kind) == (first["id"].removeprefix("resp_"), Kind.MAIN)
    assert second["id"] != first["id"]


async def test_items_are_sent_back_by_their_ids_alone(gateway: Serving):
    gateway.says[:] = [f"{THOUGHT}Let me look.\n{CALL}", "Buy milk."]
    output = (await respond(gateway, tools=[FUNCTION])).json()["output"]
    references = [{"type": "item_reference", "id": item["id"]} for item in output]
    result = {"type": "function_call_output", "call_id": output[2]["call_id"], "output": "milk"}
    items = [{"role": "user", "content": "Open it."}, *references, result]
    assert (await respond(gateway, items, tools=[FUNCTION])).status_code == 200
    one, two = await gateway.records()
    assert two.turn.parent == one.turn.id
    assert two.turn.conversation.messages[1] == one.turn.message


async def test_a_key_sees_and_continues_only_its_own_responses(gateway: Serving):
    ann, bob = await gateway.add_key("ann", "chat", "teach"), await gateway.add_key("bob", "chat", "admin")
    gateway.http.headers["authorization"] = f"Bearer {ann}"
    made = (await respond(gateway)).json()
    item = made["output"][0]["id"]
    assert (await gateway.http.get(f"/responses/{made['id']}")).status_code == 200
    gateway.http.headers["authorization"] = f"Bearer {bob}"
    for name in (made["id"], "resp_" + "0" * 26):
        refused = await respond(gateway, previous_response_id=name)
        shown = await gateway.http.get(f"/responses/{name}")
        assert (refused.status_code, shown.status_code) == (404, 404)
        assert made["id"] not in refused.text + shown.text
    alike = [await respond(gateway, [{"id": name}]) for name in (item, f"msg_{'0' * 26}0")]
    assert {answer.status_code for answer in alike} == {404}
    assert alike[0].json() == alike[1].json()
    assert len(await gateway.records()) == 1


async def test_a_stored_response_is_shown_as_it_was_sent(gateway: Serving):
    gateway.says[:] = [f"{THOUGHT}Let me look.\n{CALL}"]
    made = (await respond(gateway, tools=[FUNCTION], temperature=0.5)).json()
    shown = (await gateway.http.get(f"/responses/{made['id']}")).json()
    unknown = {"completed_at": None, "usage": shown["usage"], "max_output_tokens": shown["max_output_tokens"]}
    assert shown == made | unknown | {"model": "tiny"}
    assert made["completed_at"] >= made["created_at"]
    assert made["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    assert shown["usage"]["output_tokens_details"]["reasoning_tokens"] == 0
    unknown = await gateway.http.get("/responses/resp_%ff%00")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "response_not_found")


async def test_a_stored_call_has_its_id_even_if_the_call_before_it_is_unreadable(gateway: Serving):
    gateway.says[:] = [f'<tool_call>\n{{"name": "read", "arguments": {{path\n</tool_call>\n{CALL}']
    made = (await respond(gateway, tools=[FUNCTION])).json()
    shown = (await gateway.http.get(f"/responses/{made['id']}")).json()
    assert [item["type"] for item in made["output"]] == ["message", "function_call"]
    assert shown["output"] == made["output"]


async def test_tokens_are_counted_as_they_would_be_sampled_from(gateway: Serving):
    made = (await respond(gateway)).json()
    asked = {"model": "tiny", "input": "On.", "previous_response_id": made["id"], "tools": [FUNCTION]}
    counted = (await gateway.http.post("/responses/input_tokens", json=asked)).json()
    usage = (await gateway.http.post("/responses", json=asked)).json()["usage"]
    assert counted == {"object": "response.input_tokens", "input_tokens": usage["input_tokens"]}


async def test_feedback_is_given_by_the_responses_id(gateway: Serving):
    made = (await respond(gateway)).json()
    answer = await gateway.http.post(
        "/feedback", json={"response_id": made["id"], "thumb": "up"}, headers=gateway.owner
    )
    assert answer.json()["turn"] == made["id"].removeprefix("resp_")


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"session-id": "s{}", "thread-id": "t"}, {}),
        ({}, {"prompt_cache_key": "s{}:1"}),
        ({"x-session-id": "s{}"}, {"prompt_cache_key": "k"}),
    ],
    ids=["headers", "cache key", "both"],
)
async def test_the_clients_own_session_ids_part_equal_conversations(
    gateway: Serving, headers: dict[str, str], body: dict[str, str]
):
    said = (await respond(gateway)).json()["output"]
    items = [{"role": "user", "content": "Open it."}, *said, {"role": "user", "content": "On."}]
    for name in "ab":
        sent = {key: value.format(name) for key, value in headers.items()}
        gateway.http.headers.update(sent)
        named = {key: value.format(name) for key, value in body.items()}
        await respond(gateway, **named)
        await respond(gateway, items, **named)
    _, *records = await gateway.records()
    first, second, third, fourth = (record.turn for record in records)
    assert (second.parent, fourth.parent) == (first.id, third.id)


async def test_codexs_word_for_a_side_turn_is_taken(gateway: Serving):
    gateway.http.headers["x-codex-turn-metadata"] = '{"request_kind": "compaction"}'
    await respond(gateway)
    (record,) = await gateway.records()
    assert record.turn.kind is Kind.SIDE


async def test_a_stalled_store_is_said_to_those_who_refer_to_it(tmp_path: Path, renderer: Renderer):
    async with serving(tmp_path, renderer, settings=GatewaySettings()) as gateway:
        made = (await respond(gateway)).json()
        await gateway.app.in_flight.idle()
        await gateway.store.close()
        answer = await respond(gateway, previous_response_id=made["id"])
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")


REQUIRED = {
    "id",
    "object",
    "created_at",
    "completed_at",
    "status",
    "incomplete_details",
    "model",
    "previous_response_id",
    "instructions",
    "output",
    "error",
    "tools",
    "tool_choice",
    "truncation",
    "parallel_tool_calls",
    "text",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "temperature",
    "reasoning",
    "user",
    "usage",
    "max_output_tokens",
    "max_tool_calls",
    "store",
    "background",
    "service_tier",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
}
"""The fields of a response that the specification of Open Responses requires."""

PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
CASES = {
    "text": [{"type": "message", "role": "user", "content": "Say hello."}],
    "system": [
        {"type": "message", "role": "system", "content": "You are a pirate."},
        {"type": "message", "role": "user", "content": "Say hello."},
    ],
    "image": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What?"}, PICTURE]}
    ],
    "turns": [
        {"type": "message", "role": "user", "content": "I am Alice."},
        {"type": "message", "role": "assistant", "content": "Hello Alice!"},
        {"type": "message", "role": "user", "content": "Who am I?"},
    ],
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("calls", [False, True])
async def test_a_response_has_the_form_of_open_responses(gateway: Serving, case: str, calls: bool):
    bare = {"type": "function", "name": FUNCTION["name"]}
    more = {"tools": [bare], "reasoning": {"effort": "low"}} if calls else {}
    gateway.says[:] = [CALL if calls else "Hello."]
    whole = (await respond(gateway, CASES[case], **more)).json()
    *_, last = await events(gateway, CASES[case], **more)
    for response in (whole, last["response"]):
        assert set(response) >= REQUIRED
        assert (response["status"], response["tool_choice"]) == ("completed", "auto")
        assert response["completed_at"] >= response["created_at"]
        (item,) = response["output"]
        assert item["status"] == "completed"
        assert item["type"] == ("function_call" if calls else "message")
        assert set(response["reasoning"]) == {"effort", "summary"}
        for tool in response["tools"]:
            assert set(tool) == {"type", "name", "description", "parameters", "strict"}

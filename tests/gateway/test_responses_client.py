"""The official `openai` client's `responses` against the whole: socket, store and embedded engine."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.gateway.embedded import World
from tests.gateway.responding import CALL, FUNCTION

TOOLS: list[Any] = [FUNCTION, {"type": "web_search"}]
ASKED: list[Any] = [{"role": "user", "content": "What is in the notes?"}]


async def test_an_agent_calls_a_tool_reads_its_result_and_answers(world: World):
    world.says[:] = [f"<think>\nI look.\n</think>\n\nLet me see.\n{CALL}", "Buy milk."]
    first = await world.openai.responses.create(
        model="afterwit", input=ASKED, tools=TOOLS, instructions="Be brief.", store=False
    )
    assert [item.type for item in first.output] == ["reasoning", "message", "function_call"]
    assert first.output_text == "Let me see."
    assert first.output[0].encrypted_content  # without it, some clients keep a thought to themselves
    call = first.output[2]
    assert json.loads(call.arguments) == {"path": "notes/todo.txt"}
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "milk"}
    echoed = [item.model_dump(exclude_none=True) for item in first.output]
    second = await world.openai.responses.create(
        model="afterwit", input=[*ASKED, *echoed, result], tools=TOOLS, instructions="Be brief.", store=False
    )
    assert second.output_text == "Buy milk."
    answered = await world.milk_was_read()
    assert second.usage is not None
    assert second.usage.input_tokens == len(answered.turn.prompt_ids)
    assert second.usage.output_tokens == len(answered.turn.sampled.ids)


async def test_the_clients_own_stream_helper_reads_two_turns_of_a_kept_conversation(world: World):
    world.says[:] = [f"Let me see.\n{CALL}\n{CALL}", "Buy milk."]
    async with world.openai.responses.stream(model="afterwit", input=ASKED, tools=TOOLS) as stream:
        kinds = [event.type async for event in stream]
        first = await stream.get_final_response()
    assert kinds.count("response.output_text.delta") > 1
    assert kinds[-1] == "response.completed"
    assert first.output_text == "Let me see."
    results: list[Any] = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "milk"}
        for item in first.output
        if item.type == "function_call"
    ]
    assert len(results) == 2
    async with world.openai.responses.stream(
        model="afterwit", input=results, tools=TOOLS, previous_response_id=first.id
    ) as stream:
        second = await stream.get_final_response()
    assert second.output_text == "Buy milk."
    asked, answered = await world.records()
    assert answered.turn.parent == asked.turn.id
    assert asked.next_state is not None
    assert [message.content for message in asked.next_state.messages] == ["milk", "milk"]
    kept = await world.openai.responses.retrieve(first.id)
    assert [item.type for item in kept.output] == [item.type for item in first.output]


async def test_a_required_call_is_made_whatever_the_model_would_say(world: World):
    choice: Any = {"type": "function", "name": "read"}
    answer = await world.openai.responses.create(
        model="afterwit", input="Look.", tools=TOOLS, tool_choice=choice, max_output_tokens=60
    )
    (record,) = await world.records()
    assert record.turn.sampled.forced[0]
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")


async def test_errors_have_the_clients_own_exception_types(world: World):
    with pytest.raises(openai.NotFoundError):
        await world.openai.responses.create(model="gpt-9", input="Hi")
    with pytest.raises(openai.NotFoundError):
        await world.openai.responses.create(model="afterwit", input="Hi", previous_response_id="resp_1")
    with pytest.raises(openai.BadRequestError) as refused:
        await world.openai.responses.create(model="afterwit", input="long " * 3000)
    assert refused.value.code == "context_length_exceeded"
    counted = await world.openai.responses.input_tokens.count(model="afterwit", input="Hi")
    assert counted.input_tokens > 0

"""The official `openai` client against the whole: socket, store and embedded engine, some text scripted."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest

from tests.gateway.embedded import World
from tests.gateway.serving import TOOL

CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "notes/todo.txt"}}\n</tool_call>'
ASKED: list[Any] = [{"role": "user", "content": "What is in the notes?"}]


async def test_an_agent_calls_a_tool_reads_its_result_and_answers(world: World):
    world.says[:] = [f"<think>\nI look.\n</think>\n\nLet me see.\n{CALL}", "Buy milk."]
    first = await world.openai.chat.completions.create(model="afterwit", messages=ASKED, tools=[TOOL])
    choice = first.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see."
    (call,) = choice.message.tool_calls or ()
    assert json.loads(call.function.arguments) == {"path": "notes/todo.txt"}
    result = {"role": "tool", "tool_call_id": call.id, "content": "milk"}
    followed = [*ASKED, choice.message.model_dump(exclude_none=True), result]
    second = await world.openai.chat.completions.create(model="afterwit", messages=followed, tools=[TOOL])
    assert second.choices[0].message.content == "Buy milk."
    answered = await world.milk_was_read()
    assert second.usage is not None
    assert second.usage.prompt_tokens == len(answered.turn.prompt_ids)
    assert second.usage.completion_tokens == len(answered.turn.sampled.ids)


async def test_the_clients_own_stream_helper_puts_the_deltas_together(world: World):
    world.says[:] = [f"Let me see.\n{CALL}\n{CALL}"]
    async with world.openai.chat.completions.stream(
        model="afterwit", messages=ASKED, tools=[TOOL], stream_options={"include_usage": True}
    ) as stream:
        events = [event async for event in stream]
        final = await stream.get_final_completion()
    message = final.choices[0].message
    assert sum(event.type == "content.delta" for event in events) > 1
    assert message.content == "Let me see."
    assert [call.function.name for call in message.tool_calls or ()] == ["read", "read"]
    assert final.choices[0].finish_reason == "tool_calls"
    assert final.usage is not None
    assert final.usage.total_tokens == final.usage.prompt_tokens + final.usage.completion_tokens


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "read"}}])
async def test_a_required_call_is_made_whatever_the_model_would_say(world: World, choice: Any):
    answer = await world.openai.chat.completions.create(
        model="afterwit", messages=ASKED, tools=[TOOL], tool_choice=choice, max_tokens=60
    )
    (record,) = await world.records()
    flags = record.turn.sampled.forced
    assert flags[0]
    assert flags == tuple(sorted(flags, reverse=True))
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 60


async def test_sampled_responses_repeat_with_their_seed_and_differ_without(world: World):
    async def said(seed: int | None) -> list[str | None]:
        answer = await world.openai.chat.completions.create(
            model="afterwit", messages=ASKED, seed=seed, n=2, max_tokens=12
        )
        return [choice.message.content for choice in answer.choices]

    once, again, other = await said(7), await said(7), await said(8)
    assert once == again != other
    assert once[0] != once[1]


async def test_models_are_listed_with_their_context_length(world: World):
    models = [model.model_dump() async for model in world.openai.models.list()]
    assert {model["context_length"] for model in models} == {2048}
    one = (await world.openai.models.retrieve("afterwit")).model_dump()
    assert one["max_model_len"] == 2048
    with pytest.raises(openai.NotFoundError):
        await world.openai.models.retrieve("gpt-9")


async def test_errors_have_the_clients_own_exception_types(world: World):
    with pytest.raises(openai.NotFoundError):
        await world.openai.chat.completions.create(model="gpt-9", messages=ASKED)
    long: list[Any] = [{"role": "user", "content": "long " * 3000}]
    with pytest.raises(openai.BadRequestError) as refused:
        await world.openai.chat.completions.create(model="afterwit", messages=long)
    assert refused.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError):
        await world.openai.chat.completions.create(model="afterwit", messages=ASKED, temperature=3)


async def test_a_client_that_leaves_frees_the_engine(world: World):
    stream = await world.openai.chat.completions.create(
        model="afterwit", messages=ASKED, stream=True, max_tokens=1500, extra_body={"ignore_eos": True}
    )
    await anext(aiter(stream))
    await stream.close()
    answers = await asyncio.gather(
        *(
            world.openai.chat.completions.create(model="afterwit", messages=ASKED, max_tokens=4)
            for _ in range(8)
        )
    )
    assert {answer.usage.completion_tokens for answer in answers if answer.usage} == {4}
    records = await world.records()
    (left,) = [record for record in records if record.turn.finish == "client_left"]
    assert 0 < len(left.turn.sampled.ids) < 1500

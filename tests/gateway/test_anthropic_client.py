"""The official `anthropic` client against the whole: socket, store, embedded engine, some text scripted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from afterwit.lifecycle import State
from afterwit.store import Record
from tests.gateway.embedded import World
from tests.gateway.test_messages import CALL, READ

if TYPE_CHECKING:
    import anthropic


ASKED: list[Any] = [{"role": "user", "content": "What is in the notes?"}]
TOOLS: list[Any] = [READ]
THINKING: Any = {"type": "enabled", "budget_tokens": 1024}


def used(message: anthropic.types.Message) -> anthropic.types.ToolUseBlock:
    import anthropic

    (call,) = [block for block in message.content if isinstance(block, anthropic.types.ToolUseBlock)]
    return call


def after(message: anthropic.types.Message, result: str) -> list[Any]:
    """The conversation with the client's own echo of a reply, and the result of its call."""
    answer = {"type": "tool_result", "tool_use_id": used(message).id, "content": result}
    return [
        *ASKED,
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": [answer]},
    ]


async def streamed(world: World, **asked: Any) -> anthropic.types.Message:
    async with world.anthropic.messages.stream(model="afterwit", **asked) as stream:
        return await stream.get_final_message()


async def whole(world: World, **asked: Any) -> anthropic.types.Message:
    return await world.anthropic.messages.create(model="afterwit", **asked)


@pytest.mark.parametrize("ask", [whole, streamed])
async def test_an_agent_calls_a_tool_reads_its_result_and_answers(world: World, ask: Any):
    world.says[:] = [f"<think>\nI look.\n</think>\n\nLet me see.\n{CALL}", "Buy milk.", "No eggs."]
    asked = {"max_tokens": 2000, "tools": TOOLS, "thinking": THINKING}
    first = await ask(world, messages=ASKED, **asked)
    assert first.stop_reason == "tool_use"
    assert [block.type for block in first.content] == ["thinking", "text", "tool_use"]
    assert used(first).input == {"path": "notes/todo.txt"}
    history = after(first, "milk")
    second = await ask(world, messages=history, **asked)
    assert [block.text for block in second.content] == ["Buy milk."]
    history += [{"role": "assistant", "content": second.content}, {"role": "user", "content": "Eggs?"}]
    third = await ask(world, messages=history, **asked)
    one, two, three = await world.records()
    assert (two.turn.parent, three.turn.parent) == (one.turn.id, two.turn.id)
    assert (one.state, two.state, three.state) == (State.ANSWERED, State.ANSWERED, State.OPEN)
    assert [said.content for record in (one, two) for said in next_state(record)] == ["milk", "Eggs?"]
    cached = third.usage.cache_read_input_tokens
    assert cached
    assert third.usage.input_tokens + cached == len(three.turn.prompt_ids)
    assert third.usage.output_tokens == len(three.turn.sampled.ids)


async def test_the_last_token_of_a_prompt_is_always_read(world: World):
    """A client that takes 0 for unknown would count the cached ones twice."""
    for _ in range(2):
        answer = await streamed(world, max_tokens=2, messages=ASKED)
    (_, again) = await world.records()
    assert answer.usage.input_tokens == 1
    assert answer.usage.cache_read_input_tokens == len(again.turn.prompt_ids) - 1


def next_state(record: Record) -> Sequence[Any]:
    assert record.next_state is not None
    return record.next_state.messages


async def test_the_beta_client_reads_the_same(world: World):
    world.says[:] = ["Buy milk."]
    answer = await world.anthropic.beta.messages.create(model="afterwit", max_tokens=50, messages=ASKED)
    (block,) = answer.content
    assert block.type == "text"
    assert block.text == "Buy milk."


async def test_text_streams_in_pieces(world: World):
    world.says[:] = ["Buy some milk and eggs."]
    async with world.anthropic.messages.stream(model="afterwit", max_tokens=50, messages=ASKED) as stream:
        pieces = [piece async for piece in stream.text_stream]
    assert len(pieces) > 1
    assert "".join(pieces) == "Buy some milk and eggs."


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "read"}])
async def test_a_required_call_is_made_whatever_the_model_would_say(world: World, choice: Any):
    await whole(world, max_tokens=60, messages=ASKED, tools=TOOLS, tool_choice=choice)
    (record,) = await world.records()
    assert record.turn.sampled.forced[0]


async def test_a_stop_sequence_is_named(world: World):
    world.says[:] = ["One, two, three."]
    answer = await whole(world, max_tokens=50, messages=ASKED, stop_sequences=[", t"])
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", ", t")


async def test_tokens_are_counted(world: World):
    count = await world.anthropic.messages.count_tokens(model="afterwit", messages=ASKED, tools=TOOLS)
    answer = await whole(world, max_tokens=2, messages=ASKED, tools=TOOLS)
    assert count.input_tokens == answer.usage.input_tokens


async def test_models_are_listed_with_their_context_length(world: World):
    models = [model async for model in world.anthropic.models.list()]
    assert {(model.type, model.lifecycle) for model in models} == {("model", "active")}
    assert {model.max_input_tokens for model in models} == {2048}
    one = await world.anthropic.models.retrieve("afterwit")
    assert (one.id, one.display_name) == ("afterwit", "afterwit")
    assert one.created_at.tzinfo is not None


async def test_errors_have_the_clients_own_exception_types_and_a_request_id(world: World):
    import anthropic

    with pytest.raises(anthropic.NotFoundError):
        await world.anthropic.messages.create(model="claude-9", max_tokens=5, messages=ASKED)
    long: list[Any] = [{"role": "user", "content": "long " * 3000}]
    for ask in (whole, streamed):
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long") as refused:
            await ask(world, max_tokens=5, messages=long)
        assert (refused.value.request_id or "").startswith("req_")

"""Structured output and alternatives of tokens, as the official clients ask for them and read them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel

from afterwit.chat_format.render import Renderer
from afterwit.lifecycle import Reason, State
from tests.fakes.engine import FakeEngine
from tests.fakes.models import tiny_llama
from tests.gateway.embedded import World
from tests.gateway.serving import TOOL, Serving, serving
from tests.products import some

ASKED: list[Any] = [{"role": "user", "content": "What is in the notes?"}]


class Note(BaseModel):
    """The clients' own helpers turn this class into a schema."""

    kind: Literal["milk", "eggs"]
    fresh: bool


SCHEMA = Note.model_json_schema()
STRICT = {"type": "json_schema", "name": "note", "schema": SCHEMA, "strict": True}
WITH_FORMS = replace(FakeEngine.capabilities, constraint=True, top_logprobs=20)
CHAT_FORM: Any = {"type": "json_schema", "json_schema": {"name": "note", "schema": SCHEMA, "strict": True}}


async def of_chat(world: World) -> Note | None:
    answer = await world.openai.chat.completions.parse(model="afterwit", messages=ASKED, response_format=Note)
    return answer.choices[0].message.parsed


async def of_a_chat_stream(world: World) -> Note | None:
    async with world.openai.chat.completions.stream(
        model="afterwit", messages=ASKED, response_format=Note
    ) as stream:
        async for _ in stream:
            pass
        return (await stream.get_final_completion()).choices[0].message.parsed


async def of_responses(world: World) -> Note | None:
    answer = await world.openai.responses.parse(model="afterwit", input=ASKED, text_format=Note)
    return answer.output_parsed


async def of_messages(world: World) -> Note | None:
    answer = await world.anthropic.messages.parse(
        model="afterwit", max_tokens=400, messages=ASKED, output_format=Note
    )
    return answer.parsed_output


@pytest.mark.parametrize("ask", some(3, [of_chat, of_a_chat_stream, of_responses, of_messages]))
async def test_the_clients_own_helpers_get_what_they_ask_for_and_it_does_not_train(world: World, ask: Any):
    assert isinstance(await ask(world), Note)
    (record,) = await world.records()
    assert all(record.turn.sampled.forced)
    assert (record.state, record.reason) == (State.SKIPPED, Reason.ALL_FORCED)


async def test_a_json_object_is_an_object(world: World):
    answer = await world.openai.chat.completions.create(
        model="afterwit", messages=ASKED, response_format={"type": "json_object"}, max_tokens=150
    )
    choice = answer.choices[0]
    assert (choice.message.content or "").startswith("{")
    assert choice.finish_reason == "length" or isinstance(json.loads(choice.message.content or ""), dict)


BAD = {"type": "object", "properties": {"a": {"type": "cheese"}}}


async def test_a_schema_that_cannot_be_followed_is_a_400_at_its_field(world: World):
    import anthropic

    form: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": BAD}}
    with pytest.raises(openai.BadRequestError) as refused:
        await world.openai.chat.completions.create(model="afterwit", messages=ASKED, response_format=form)
    assert refused.value.param == "response_format"
    text: Any = {"format": {"type": "json_schema", "name": "n", "schema": BAD}}
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as refused:
            await world.openai.responses.create(model="afterwit", input="Hi", text=text, stream=stream)
        assert refused.value.param == "text.format"
    config: Any = {"format": {"type": "json_schema", "schema": BAD}}
    with pytest.raises(anthropic.BadRequestError, match="schema"):
        await world.anthropic.messages.create(
            model="afterwit", max_tokens=9, messages=ASKED, output_config=config
        )
    assert await world.records() == []


async def test_what_a_lenient_schema_says_beyond_the_engine_is_ignored_and_a_strict_one_is_refused(
    world: World,
):
    schema = {"type": "integer", "minimum": 0, "maximum": 9, "not": {"const": 3}}
    form: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    answer = await world.openai.chat.completions.create(
        model="afterwit", messages=ASKED, response_format=form
    )
    assert 0 <= int(answer.choices[0].message.content or "") <= 9
    form["json_schema"]["strict"] = True
    with pytest.raises(openai.BadRequestError):
        await world.openai.chat.completions.create(model="afterwit", messages=ASKED, response_format=form)


async def test_beside_tools_the_model_answers_in_form_or_calls_one(gateway: Serving):
    gateway.engine.capabilities = WITH_FORMS
    await gateway.ask(tools=[TOOL], response_format=CHAT_FORM)
    await gateway.ask(tools=[TOOL], response_format=CHAT_FORM, tool_choice="required")
    await gateway.ask(tools=[TOOL], response_format=CHAT_FORM, tool_choice="none")
    free, forced, without = (request.constraint for request in gateway.engine.asked)
    assert free is not None
    assert free.call_openings == ("<tool_call>",)
    assert forced is None
    assert without is not None
    assert without.call_openings == ()


async def test_the_form_begins_behind_the_reasoning(gateway: Serving):
    gateway.engine.capabilities = WITH_FORMS
    await gateway.ask(response_format=CHAT_FORM)
    (request,) = gateway.engine.asked
    assert request.constraint is not None
    assert (request.constraint.starts_after, request.constraint.reasoning) == ("", (("<think>", "</think>"),))


async def test_a_model_that_was_taught_no_reasoning_begins_with_the_form(tmp_path: Path):
    renderer = Renderer.load(tiny_llama(tmp_path, num_hidden_layers=1))
    async with serving(tmp_path, renderer) as gateway:
        gateway.engine.capabilities = WITH_FORMS
        answer = await gateway.ask(response_format=CHAT_FORM)
        (request,) = gateway.engine.asked
    assert (answer.status_code, request.constraint and request.constraint.reasoning) == (200, ())


async def test_an_engine_that_keeps_no_form_is_a_400_and_so_are_alternatives_it_does_not_tell(
    gateway: Serving,
):
    refused = await gateway.ask(response_format=CHAT_FORM)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "response_format")
    refused = await gateway.ask(logprobs=True, top_logprobs=5)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "top_logprobs")
    refused = await gateway.http.post(
        "/responses", json={"model": "tiny", "input": "Hi", "text": {"format": STRICT}}
    )
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "text.format")


async def test_chat_tells_the_alternatives_of_each_token(world: World):
    asked: dict[str, Any] = {"logprobs": True, "top_logprobs": 4, "max_tokens": 6, "temperature": 0.4}
    answer = await world.openai.chat.completions.create(model="afterwit", messages=ASKED, seed=3, **asked)
    tokens = told(answer.choices[0].logprobs)
    assert "".join(token.token for token in tokens) == answer.choices[0].message.content
    for token in tokens:
        values = [other.logprob for other in token.top_logprobs]
        assert len(values) == 4
        assert values == sorted(values, reverse=True)
        assert token.logprob <= values[0] + 1e-6
    stream = await world.openai.chat.completions.create(
        model="afterwit", messages=ASKED, seed=3, stream=True, **asked
    )
    streamed = [token async for chunk in stream for token in told(chunk.choices[0].logprobs)]
    assert [(token.token, len(token.top_logprobs)) for token in streamed] == [
        (token.token, 4) for token in tokens
    ]
    recorded = (await world.records())[0].turn.sampled.logprobs
    assert recorded[0] != pytest.approx(tokens[0].logprob)  # that one is at the temperature of 0.4


def told(logprobs: Any) -> list[Any]:
    return (logprobs and logprobs.content) or []


async def test_responses_tell_the_alternatives_of_each_token(world: World):
    include: Any = ["message.output_text.logprobs"]
    asked: dict[str, Any] = {"include": include, "top_logprobs": 3, "max_output_tokens": 16}
    answer = await world.openai.responses.create(model="afterwit", input="Notes?", **asked)
    (item,) = [item for item in answer.output if item.type == "message"]
    (part,) = item.content
    assert part.type == "output_text"
    assert "".join(token.token for token in part.logprobs or ()) == part.text
    assert {len(token.top_logprobs) for token in part.logprobs or ()} == {3}
    async with world.openai.responses.stream(model="afterwit", input="Notes?", **asked) as stream:
        events = [event async for event in stream]
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert {len(token.top_logprobs or ()) for delta in deltas for token in delta.logprobs} == {3}


async def test_the_engine_works_out_alternatives_only_for_those_who_ask(gateway: Serving):
    gateway.engine.capabilities = WITH_FORMS
    await gateway.ask()
    assert (await gateway.ask(logprobs=True)).status_code == 200
    assert (await gateway.ask(logprobs=True, top_logprobs=2)).status_code == 200
    assert [request.top_logprobs for request in gateway.engine.asked] == [None, 0, 2]

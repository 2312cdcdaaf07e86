"""Each convention through the gateway, with a tokenizer that calls the family's marks special."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from afterwit.chat_format.families import CONVENTIONS, NO_CALLS, Convention
from afterwit.chat_format.render import Renderer
from afterwit.gateway.settings import GatewaySettings
from tests.chat_format.families.transcripts import TOOLS, Transcript, transcripts
from tests.gateway.serving import TOOL, folded, plain, serving
from tests.products import some

each = pytest.mark.parametrize("convention", some(3, CONVENTIONS), ids=lambda entry: entry.name)
TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}{{ tools }}"


def renderer_of(model: Path, convention: Convention, template: str = TEMPLATE) -> Renderer:
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.add_special_tokens([mark for mark in convention.marks if mark[:2] in ("<|", "<｜", "[T", "[A")])
    end_ids = frozenset({tokenizer.token_to_id("<|im_end|>")})
    templates = {"default": template}
    name = convention.name if template is TEMPLATE else "auto"
    return Renderer(tokenizer, templates, special_tokens={}, end_ids=end_ids, tool_call_parser=name)


def transcript_of(convention: Convention) -> Transcript:
    """The first that makes a call and does not begin inside the reasoning."""
    return next(row for row in transcripts() if row.convention is convention and row.calls and not row.opened)


@each
async def test_the_client_gets_the_calls_whole_and_streamed(
    tmp_path: Path, model: Path, convention: Convention
):
    wanted = transcript_of(convention)
    async with serving(tmp_path, renderer_of(model, convention)) as gateway:
        gateway.says[:] = [wanted.text]
        whole = (await gateway.ask(tools=TOOLS)).json()["choices"][0]
        streamed = folded(await gateway.chunks(tools=TOOLS))[0]
    message, finish = whole["message"], whole["finish_reason"]
    made = [call["function"] for call in message["tool_calls"]]
    assert [(call["name"], json.loads(call["arguments"])) for call in made] == [
        (name, json.loads(arguments)) for name, arguments in wanted.calls
    ]
    assert (message["content"] or "") == wanted.content
    assert (message.get("reasoning_content") or "") == wanted.reasoning
    assert finish == streamed["finish_reason"] == "tool_calls"
    begun = [call["function"] for call in streamed["message"]["tool_calls"]]
    assert begun[: len(made)] == made
    assert len(begun) - len(made) == (
        wanted.content.count(convention.calls[0].begin) if convention.calls else 0
    )
    assert plain(streamed["message"])["content"] == message["content"]


@each
async def test_a_call_can_be_forced(tmp_path: Path, model: Path, convention: Convention):
    renderer = renderer_of(model, convention)
    async with serving(tmp_path, renderer) as gateway:
        await gateway.ask(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "read"}})
        (request,) = gateway.engine.asked
    assert renderer.decode(request.forced_prefix) == convention.forced_opening("read", None)


async def test_a_template_that_teaches_no_calls_serves_text_and_says_so_once(
    tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture
):
    renderer = renderer_of(model, NO_CALLS, "{{ tools }}" + TEMPLATE)
    with caplog.at_level(logging.WARNING):
        async with serving(tmp_path, renderer) as gateway:
            gateway.says[:] = ["<think>Hm.</think>Hello there."]
            answer = (await gateway.ask(tools=[TOOL])).json()
            await gateway.ask(tools=[TOOL])
            forced = await gateway.ask(tools=[TOOL], tool_choice="required")
    message = answer["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("Hello there.", "Hm.")
    assert (forced.status_code, forced.json()["error"]["code"]) == (400, "unsupported_tool_choice")
    (said,) = [record.getMessage() for record in caplog.records if "convention" in record.getMessage()]
    assert "gateway.tool_call_parser" in said


def test_a_misspelt_convention_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'qwen_xml'"):
        GatewaySettings(tool_call_parser="qwen-xml")
    assert GatewaySettings(tool_call_parser="none").tool_call_parser == "none"

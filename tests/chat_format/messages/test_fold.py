"""Messages that a template refuses or omits are folded into a form that it accepts, and no text is lost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from afterwit.chat_format.parse import ResponseParser
from afterwit.chat_format.render import Renderer
from afterwit.chat_format.template import TemplateRules, folded, rules_of, short_id
from afterwit.errors import RequestError
from afterwit.turn import Conversation, Message, ToolCall
from tests.chat_format.families.transcripts import TOOLS
from tests.chat_format.messages.templates import TEMPLATES
from tests.fakes.models import tiny_qwen3
from tests.timing import check_linear

RULES = {
    "kimi": {"named_ids"},
    "gemma2": {"system", "systems", "late_system", "repeats", "person_first", "calls", "results"},
    "glm": set(),
    "gemma4": {"lone_results"},
    "phi3": {"calls", "results", "lone_results"},
    "idefics": {"calls", "parts"},
    "mistral": {
        "systems",
        "late_system",
        "repeats",
        "user_after_tool",
        "short_ids",
        "person_first",
        "lone_results",
    },
    "ministral": {
        "systems",
        "late_system",
        "repeats",
        "user_after_tool",
        "empty_replies",
        "person_first",
        "lone_results",
    },
    "last_system": {"systems", "late_system"},
    "harmony": {"bare_tools", "systems", "late_system", "many_calls", "thought_beside_text", "lone_results"},
    "deepseek": {"text_arguments"},
    "qwen35": {"systems", "late_system", "person_first"},
    "qwen3": set(),
    "llama3": {"many_calls", "person_first"},
}
"""The rules of each template that are not those of one that takes everything."""


@pytest.fixture(scope="module")
def renderers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Renderer]:
    folder = tiny_qwen3(tmp_path_factory.mktemp("model"))
    return {name: with_template(folder, template) for name, template in TEMPLATES.items()}


def with_template(folder: Path, template: str) -> Renderer:
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return Renderer.load(folder)


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_rules_of_a_template_are_found_by_rendering(renderers, name):
    found = renderers[name]._rules[renderers[name]._name(has_tools=True)]
    free = TemplateRules()
    assert {rule for rule in RULES[name] if getattr(found, rule) != getattr(free, rule)} == RULES[name]
    others = set(TemplateRules.__slots__) - RULES[name] - {"developer"}
    assert all(getattr(found, rule) == getattr(free, rule) for rule in others)
    assert found.developer == ("developer" in TEMPLATES[name] and name != "last_system")


def test_a_template_that_shows_no_message_has_no_rules():
    assert rules_of(lambda messages, tools: "", "") == TemplateRules(developer=False)


def says(role: str, content: str | None, **fields) -> Message:
    return Message(role=role, content=content, **fields)


def calls(*names: str, content: str | None = None, reasoning: str | None = None) -> list[Message]:
    """A message with calls, and their results."""
    made = tuple(ToolCall(id=f"call_{name}", name="read", arguments=f'{{"path":"{name}"}}') for name in names)
    message = Message(role="assistant", content=content, reasoning=reasoning, tool_calls=made)
    return [message, *(says("tool", f"result {name}", tool_call_id=f"call_{name}") for name in names)]


def text(renderer: Renderer, *messages: Message) -> str:
    return renderer.text(Conversation(messages=messages))


words = st.text("abcdefgh", min_size=6, max_size=9)
plain = st.builds(says, st.sampled_from(["user", "user", "assistant", "system", "developer"]), words)
plain |= st.just(says("assistant", ""))
called = st.builds(
    lambda names, content, reasoning, results: calls(*names, content=content, reasoning=reasoning)[:results],
    st.lists(words, min_size=1, max_size=3, unique=True),
    st.none() | words,
    st.none() | words,
    st.integers(1, 4),
)
conversations = st.lists(plain.map(lambda message: [message]) | called, max_size=5).map(
    lambda parts: (says("system", "instruct"), says("user", "question"), *(m for part in parts for m in part))
)


@pytest.mark.parametrize("name", sorted(TEMPLATES))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=conversations)
def test_no_conversation_is_refused_and_nothing_that_was_said_is_lost(renderers, name, messages):
    rendered = text(renderers[name], *messages)
    for message in messages:
        if not (name == "llama3" and message.tool_calls):  # it leaves out text next to a call
            assert (message.content or "") in rendered
        if name != "idefics":  # it shows no calls
            assert all(call.arguments[9:-2] in rendered for call in message.tool_calls)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=conversations, name=st.sampled_from(sorted(TEMPLATES)))
def test_a_stored_conversation_renders_the_same_ids(renderers, name, messages):
    conversation = Conversation(messages=messages)
    stored = Conversation.from_dict(conversation.to_dict())
    assert renderers[name].prompt_ids(stored) == renderers[name].prompt_ids(conversation)


BEGINNINGS: dict[str, tuple[Message, ...]] = {
    "a system text": (says("system", "instruct"),),
    "a reply": (says("assistant", "greeting"), says("user", "question")),
    "a call": tuple(calls("milk")),
    "a system text and a call": (says("system", "instruct"), *calls("milk")),
    "a result": (says("tool", "result milk", tool_call_id="call_gone"),),
    "a result without an id": (says("tool", "result milk"), says("user", "question")),
}


@pytest.mark.parametrize("begun", BEGINNINGS)
@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_a_conversation_may_begin_with_anything_and_goes_on_as_it_began(renderers, name, begun):
    renderer, messages = renderers[name], BEGINNINGS[begun]
    rendered = text(renderer, *messages)
    assert all((message.content or "") in rendered for message in messages)
    asks = Conversation(messages=messages)
    later = text(renderer, *messages, says("assistant", "reply"), says("user", "more"))
    assert later.startswith(renderer.text(asks, generation_prompt=False))


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_results_without_ids_are_those_of_the_calls_before_them(renderers, name):
    asked, one, other = calls("a", "b")
    bare = [replace(result, tool_call_id=None) for result in (one, other)]
    assert text(renderers[name], says("user", "x"), asked, *bare) == text(
        renderers[name], says("user", "x"), asked, one, other
    )


def test_calls_and_results_are_told_in_words_where_the_template_drops_them(renderers):
    rendered = text(
        renderers["phi3"], says("user", "Read"), *calls("a", content="I look."), says("user", "So?")
    )
    assert 'assistant|>\nI look.\n\nCalled read: {"path":"a"}<|end|>' in rendered
    assert "user|>\nResult of read:\nresult a<|end|>\n<|user|>\nSo?" in rendered
    rendered = text(renderers["idefics"], says("user", "Read"), *calls("a"))
    assert 'Assistant: Called read: {"path":"a"}<end>\nTool: result a<end>' in rendered


def test_several_instructions_become_one_and_go_to_the_person_where_there_is_no_system(renderers):
    messages = says("system", "One."), says("developer", "Two."), says("user", "Hi")
    assert "<start_of_turn>user\nOne.\n\nTwo.\n\nHi<end_of_turn>" in text(renderers["gemma2"], *messages)
    assert "<|im_start|>system\nOne.\n\nTwo.<|im_end|>" in text(renderers["qwen35"], *messages)
    assert "<|start|>developer<|message|>One.\n\nTwo.<|end|>" in text(renderers["harmony"], *messages)


def test_a_late_instruction_is_a_persons_message_in_its_place(renderers):
    messages = says("user", "Hi"), says("assistant", "Yes?"), says("system", "Be brief."), says("user", "Go")
    assert "user\nBe brief.<|im_end|>\n<|im_start|>user\nGo" in text(renderers["qwen35"], *messages)
    assert "Yes?</s>[INST]Be brief.\n\nGo[/INST]" in text(renderers["mistral"], *messages)


def test_an_interruption_after_a_result_follows_an_empty_reply(renderers):
    rendered = text(renderers["mistral"], says("user", "Read"), *calls("a"), says("user", "Stop"))
    assert rendered.endswith("result a[/TOOL_RESULTS]</s>[INST]Stop[/INST]")
    rendered = text(renderers["ministral"], says("user", "Read"), *calls("a")[:1], says("user", "Stop"))
    assert rendered.endswith('read[ARGS]{"path": "a"}</s> </s>[INST]Stop[/INST]')


def test_ids_are_nine_letters_and_digits_and_the_same_in_call_and_result(renderers):
    rendered = text(renderers["mistral"], says("user", "Read"), *calls("a", "b"))
    for name in ("call_a", "call_b"):
        assert rendered.count(short_id(name)) == 2
    assert short_id("9Ae3bDc2F") == "9Ae3bDc2F"
    assert short_id("call_a").isalnum()
    assert len({short_id(f"call_{place}") for place in range(1000)}) == 1000


def test_ids_that_hold_the_name_count_all_calls_of_the_conversation(renderers):
    stray = says("tool", "late", tool_call_id="call_gone")
    rendered = text(renderers["kimi"], says("user", "Read"), *calls("a", "b"), *calls("c"), stray)
    for place in range(3):
        assert f"<|tool_call_begin|>functions.read:{place}<" in rendered
        assert f"## Return of functions.read:{place}" in rendered
    assert "## Return of call_gone" in rendered


@pytest.mark.parametrize("argument", ["thinking", "enable_thinking"])
def test_either_argument_allows_reasoning_whichever_the_template_reads(renderers, argument):
    def ends(allowed: bool) -> str:
        asks = Conversation(messages=(says("user", "Hi"),), template_args={argument: allowed})
        return renderers["kimi"].text(asks)

    assert ends(True).endswith("<think>")
    assert not ends(False).endswith("<think>")


def test_parallel_calls_are_made_one_by_one_with_their_own_results(renderers):
    asked, first, second = calls("a", "b")
    rendered = text(renderers["harmony"], says("user", "Read"), asked, second, first)
    assert rendered.index('{"path": "a"}') < rendered.index("result a") < rendered.index('{"path": "b"}')
    assert rendered.index('{"path": "b"}') < rendered.index("result b")


def test_reasoning_and_text_beside_a_call_become_the_reasoning(renderers):
    rendered = text(renderers["harmony"], says("user", "x"), *calls("a", content="Now.", reasoning="Hm."))
    assert "analysis<|message|>Hm.\n\nNow.<|end|>" in rendered


def test_arguments_as_text_are_spaced_alike_however_the_client_sends_them_back(renderers):
    def sent(arguments: str) -> str:
        call = ToolCall(id="c", name="read", arguments=arguments)
        return text(renderers["deepseek"], says("user", "x"), says("assistant", None, tool_calls=(call,)))

    assert '<｜tool▁sep｜>{"path": "ä"}<' in sent('{"path":"\\u00e4"}')
    assert sent('{"path":"ä"}') == sent('{ "path" : "ä" }')
    assert '<｜tool▁sep｜>{"input": "no JSON"}<' in sent("no JSON")


def test_a_result_has_the_name_of_its_tool_whether_the_client_sends_it_or_not(tmp_path):
    shows = "{% for m in messages %}{{ m.role }} {{ m.name }} {{ m.content }};{% endfor %}"
    renderer = with_template(tiny_qwen3(tmp_path), shows)
    (asked, result) = calls("a")
    named = Message(role="tool", content="result a", tool_call_id="call_a", name="other")
    assert "tool read result a;" in text(renderer, asked, result)
    assert text(renderer, asked, named) == text(renderer, asked, result)


def test_a_tool_without_a_description_gets_an_empty_one_where_the_template_needs_it(renderers):
    bare = {"type": "function", "function": {"name": "look"}}
    asks = Conversation(messages=(says("user", "Hi"),), tools=(bare,))
    assert "// \ntype look = () => any;" in renderers["harmony"].text(asks)
    assert "description" not in renderers["qwen3"].text(asks)


@pytest.mark.parametrize(
    "parameters", [None, {}, {"type": "object"}, {"type": "object", "required": None, "properties": None}]
)
def test_a_tool_gets_the_fields_that_a_template_for_requests_with_tools_needs(tmp_path, parameters):
    shows = (
        "{% for tool in tools %}{{ tool.function.name + tool.function.description }}"
        "{{ tool.function.parameters.properties.items() | list }}{% endfor %}"
        "{% for m in messages %}{{ m.role + m.content }}{% endfor %}"
    )
    tool = {"type": "function", "function": {"name": "look", "parameters": parameters}}
    asks = Conversation(messages=(says("user", "Hi"),), tools=(tool,))
    assert with_template(tiny_qwen3(tmp_path), shows).text(asks) == "look[]userHi"


WRITTEN = ("mistral", "harmony", "deepseek", "qwen35", "qwen3", "llama3", "kimi")
HARD = {"query": 'say "hi"\n</tool_call> <b> \U0001f642 \\', "filters": {"tags": ["a", "{"], "max": 3}}


@pytest.mark.parametrize("name", WRITTEN)
def test_the_calls_that_a_template_writes_are_the_calls_that_are_read(renderers, name):
    """History and response have one form: what the model learns from its prompt, the parser reads."""
    renderer = renderers[name]
    made = [ToolCall(id="c0", name="search", arguments=json.dumps(HARD))]
    made += [ToolCall(id="c1", name="look", arguments="{}")] * renderer._rules[
        renderer._name(has_tools=True)
    ].many_calls
    asks, calls = says("user", "Hi"), Message(role="assistant", content=None, tool_calls=tuple(made))
    prompt = renderer.text(Conversation(messages=(asks,)))
    whole = renderer.text(Conversation(messages=(asks, calls)), generation_prompt=False)
    assert whole.startswith(prompt)
    response = whole.removeprefix(prompt)
    for end in ("<|im_end|>", "</s>", "<|call|>", "<｜end▁of▁sentence｜>", "<|eot_id|>"):
        response = response.strip().removesuffix(end)
    parser = ResponseParser(
        renderer.convention, thought=renderer.convention.open_thought(prompt), tools=TOOLS
    )
    parser.push(response)
    parser.finish()
    read = parser.message(str)
    assert [(call.name, json.loads(call.arguments)) for call in read.tool_calls] == [
        (call.name, json.loads(call.arguments)) for call in made
    ]
    assert not read.content


def test_what_cannot_be_folded_is_refused_in_the_words_of_the_template(tmp_path):
    refuses = """{% for m in messages %}
    {{ m.content if m.content != 'no' else raise_exception('Not this') }}
    {% endfor %}"""
    with pytest.raises(RequestError, match="Not this") as refused:
        text(with_template(tiny_qwen3(tmp_path), refuses), says("user", "no"))
    assert (refused.value.status, refused.value.code) == (400, "template_error")


def test_a_call_id_that_a_client_uses_again_stays_with_its_own_result():
    def step(name: str) -> list[Message]:
        call = ToolCall(id="call_1", name=name, arguments="{}")
        return [
            Message(role="user", content="go"),
            Message(role="assistant", tool_calls=(call,)),
            Message(role="tool", content=name, tool_call_id="call_1"),
        ]

    for rules in (TemplateRules(), TemplateRules(named_ids=True), TemplateRules(short_ids=True)):
        messages = folded([*step("read"), *step("write"), *step("list")], rules)
        called = [(call.id, call.name) for message in messages for call in message.tool_calls]
        results = [(one.tool_call_id, one.name) for one in messages if one.role == "tool"]
        assert called == results
        assert len(set(called)) == 3
        assert [one.content for one in messages if one.role == "tool"] == ["read", "write", "list"]


def test_parallel_calls_without_ids_keep_their_results_in_order():
    calls = tuple(ToolCall(id="", name=name, arguments="{}") for name in ("read", "write"))
    results = [Message(role="tool", content=name, tool_call_id="") for name in ("read", "write")]
    messages = folded([Message(role="assistant", tool_calls=calls), *results], TemplateRules())
    assert [one.name for one in messages[1:]] == ["read", "write"]


@pytest.mark.parametrize("sent", ["c{}", ""], ids=["ids", "no_ids"])
def test_many_calls_with_many_results_are_folded_in_linear_time(sent: str) -> None:
    def make(count: int) -> list[Message]:
        calls = tuple(ToolCall(id=f"c{n}", name="look", arguments="{}") for n in range(count))
        results = [
            Message(role="tool", content="x", tool_call_id=sent.format(n) or None)
            for n in reversed(range(count))
        ]
        return [says("user", "Hi"), Message(role="assistant", content=None, tool_calls=calls), *results]

    check_linear(lambda messages: folded(messages, TemplateRules(many_calls=False)), make, 1_000)


def test_a_result_follows_one_call_even_if_several_have_its_id() -> None:
    calls = tuple(ToolCall(id=id, name="look", arguments="{}") for id in ("a", "a_2", "a", "a", "a"))
    results = [Message(role="tool", content=str(n), tool_call_id="a") for n in range(4)]
    messages = [says("user", "Hi"), Message(role="assistant", content=None, tool_calls=calls), *results]
    said = folded(messages, TemplateRules(many_calls=False))
    assert [message.content for message in said if message.role == "tool"] == ["0", "1", "2", "3"]

"""The renderer against transformers' `apply_chat_template`, over folders of both families."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer

from afterwit.chat_format.render import Renderer, known_effort
from afterwit.chat_format.template import TemplateRules, folded, template_message
from afterwit.dialects.request import EFFORTS
from afterwit.engines.model_files import facts_of
from afterwit.errors import RequestError, SettingError
from afterwit.turn import Conversation, Message, ToolCall
from tests.fakes.models import tiny_llama, tiny_qwen3
from tests.fakes.renderers import renderer_of
from tests.products import diagonal

READ = {
    "type": "function",
    "function": {
        "name": "read",
        "description": "Reads a file; says <what> it holds & how",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}


def says(role: str, content: str | None = None, **fields) -> Message:
    return Message(role=role, content=content, **fields)


def reads(*paths: str, content: str | None = None, arguments: str | None = None) -> Message:
    calls = [
        ToolCall(id=f"c{place}", name="read", arguments=arguments or json.dumps({"path": path}))
        for place, path in enumerate(paths)
    ]
    return Message(role="assistant", content=content, tool_calls=tuple(calls))


RESULT = says("tool", "hello wörld", tool_call_id="c0")
CONVERSATIONS = {
    "plain": Conversation(messages=(says("user", "Read a.txt <please> & thank you 🙂"),)),
    "system": Conversation(messages=(says("system", " Be brief. "), says("user", "Hi"))),
    "tools": Conversation(messages=(says("system", "Be brief."), says("user", "Hi")), tools=(READ,)),
    "one call": Conversation(messages=(says("user", "Read"), reads("a.txt"), RESULT), tools=(READ,)),
    "call with text": Conversation(
        messages=(says("user", "Read"), reads("ä.txt", content="Let me."), RESULT, says("user", "Again")),
        tools=(READ,),
    ),
    "thought": Conversation(
        messages=(says("user", "Read"), says("assistant", "Done.", reasoning="I should."), says("user", "No"))
    ),
}
PARALLEL = Conversation(
    messages=(
        says("user", "Read both"),
        reads("a.txt", "b.txt"),
        RESULT,
        says("tool", "two", tool_call_id="c1"),
    ),
    tools=(READ,),
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {"qwen3": tiny_qwen3(root / "qwen3"), "llama3": tiny_llama(root / "llama3")}


@pytest.fixture(scope="module")
def renderer(folders: dict[str, Path]) -> Renderer:
    return renderer_of(folders["qwen3"])


def by_transformers(folder: Path, conversation: Conversation, **more) -> list[int]:
    tokenizer, takes_all = AutoTokenizer.from_pretrained(folder), TemplateRules(developer=False)
    return tokenizer.apply_chat_template(
        [template_message(message, takes_all) for message in folded(conversation.messages, takes_all)],
        tools=[dict(tool) for tool in conversation.tools] or None,
        add_generation_prompt=True,
        return_dict=False,
        **{**conversation.template_args, **more},
    )


@pytest.mark.parametrize(("family", "name"), diagonal(["qwen3", "llama3"], list(CONVERSATIONS)))
def test_prompt_ids_are_those_of_transformers(folders, family, name):
    renderer = renderer_of(folders[family])
    plain = CONVERSATIONS[name]
    conversation = Conversation(
        messages=plain.messages, tools=plain.tools, template_args={"date_string": "26 Jul 2024"}
    )
    assert list(renderer.prompt_ids(conversation)) == by_transformers(folders[family], conversation)


def test_parallel_calls_and_template_arguments_render_as_transformers_renders_them(folders):
    renderer = renderer_of(folders["qwen3"])
    quiet = Conversation(
        messages=PARALLEL.messages, tools=PARALLEL.tools, template_args={"enable_thinking": False}
    )
    for conversation in (PARALLEL, quiet):
        assert list(renderer.prompt_ids(conversation)) == by_transformers(folders["qwen3"], conversation)
    assert renderer.prompt_ids(quiet) != renderer.prompt_ids(PARALLEL)


texts = st.text(max_size=40)
messages = st.lists(
    st.one_of(
        st.builds(says, st.sampled_from(["user", "system"]), texts),
        st.builds(
            lambda content, thought: says("assistant", content, reasoning=thought), texts, st.none() | texts
        ),
        st.builds(lambda path, content: reads(path, content=content), texts, texts),
        st.builds(lambda content: says("tool", content, tool_call_id="c0"), texts),
    ),
    min_size=1,
    max_size=5,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=messages, tools=st.sampled_from([(), (READ,)]))
def test_any_conversation_renders_as_transformers_renders_it(folders, renderer, messages, tools):
    conversation = Conversation(messages=tuple(messages), tools=tools)
    ids = renderer.prompt_ids(conversation)
    assert list(ids) == by_transformers(folders["qwen3"], conversation)
    assert ids == renderer.prompt_ids(Conversation.from_dict(conversation.to_dict()))


@given(text=texts)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_decoding_undoes_encoding(renderer, text):
    assert renderer.decode(renderer.encode(text)) == text


def test_argument_spacing_and_key_order_of_the_echo_do_not_reach_the_prompt_but_key_order_does(folders):
    renderer = renderer_of(folders["qwen3"])

    def prompt(arguments: str) -> tuple[int, ...]:
        conversation = Conversation(
            messages=(says("user", "x"), reads("a", arguments=arguments)), tools=(READ,)
        )
        return renderer.prompt_ids(conversation)

    assert prompt('{"path":"a","n":1}') == prompt('{ "path": "a", "n": 1 }')
    assert prompt('{"path":"a","n":1}') != prompt('{"n":1,"path":"a"}')


def test_half_a_surrogate_pair_is_a_400(folders):
    with pytest.raises(RequestError) as refused:
        renderer_of(folders["qwen3"]).prompt_ids(Conversation(messages=(says("user", "\ud800"),)))
    assert (refused.value.status, refused.value.code) == (400, "invalid_unicode")


def small(folder: Path, source: Path, template: str | None, **config) -> Path:
    """The tokenizer of `source` with another template."""
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_bytes((source / "tokenizer.json").read_bytes())
    fields = {"eos_token": {"content": "<|im_end|>"}, "chat_template": template, **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(fields))
    return folder


ASKS = Conversation(messages=(says("user", "Hi"),))


def test_the_date_is_the_one_that_was_pinned(folders, tmp_path):
    dated = small(
        tmp_path / "m", folders["qwen3"], "{{ strftime_now('%d %b %Y') }}: {{ messages[0].content }}"
    )
    renderer = Renderer.load(dated)
    assert renderer.text(ASKS) == "01 Jan 1970: Hi"
    pinned = renderer.dated(ASKS, now=1_795_220_000.0)
    assert renderer.text(pinned) == "21 Nov 2026: Hi"
    assert renderer.text(Conversation.from_dict(pinned.to_dict())) == "21 Nov 2026: Hi"
    assert renderer_of(folders["qwen3"]).dated(ASKS, now=5.0) == ASKS


def test_special_tokens_are_not_added_twice(folders, tmp_path):
    folder = small(
        tmp_path / "m", folders["qwen3"], "{{ bos_token }}{{ messages[0].content }}", bos_token="<|im_start|>"
    )
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    bos = tokenizer.token_to_id("<|im_start|>")
    tokenizer.post_processor = TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", bos)]
    )
    tokenizer.enable_truncation(3)
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = Renderer.load(folder).prompt_ids(Conversation(messages=(says("user", "one two three four"),)))
    assert ids.count(bos) == 1
    assert len(ids) > 3


def test_a_named_template_serves_requests_with_tools(folders, tmp_path):
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "with tools"}]
    renderer = Renderer.load(small(tmp_path / "m", folders["qwen3"], named))
    assert renderer.text(ASKS) == "plain"
    assert renderer.text(Conversation(messages=ASKS.messages, tools=(READ,))) == "with tools"


def test_a_template_file_wins_over_the_tokenizer_config(folders, tmp_path):
    folder = small(tmp_path / "m", folders["qwen3"], "config")
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": "json file"}))
    assert Renderer.load(folder).text(ASKS) == "json file"
    (folder / "chat_template.jinja").write_text("{% generation %}jinja file{% endgeneration %}")
    assert Renderer.load(folder).text(ASKS) == "jinja file"


def test_a_developer_is_the_system_to_a_template_that_knows_none(folders, tmp_path):
    instruct = Conversation(messages=(says("developer", "Be brief."), says("user", "Hi")))
    renderer = renderer_of(folders["qwen3"])
    assert "Be brief." in renderer.text(instruct)
    knows = small(tmp_path / "m", folders["qwen3"], "{{ messages[0].role }} {# developer #}")
    assert Renderer.load(knows).text(instruct).strip() == "developer"


def test_a_template_cannot_reach_out_of_its_sandbox(folders, tmp_path):
    nosy = small(tmp_path / "m", folders["qwen3"], "{{ raise_exception.__globals__.json }}")
    with pytest.raises(RequestError, match="unsafe"):
        Renderer.load(nosy).text(ASKS)


def test_the_end_ids_are_all_that_the_folder_names(folders):
    tokenizer = Tokenizer.from_file(str(folders["llama3"] / "tokenizer.json"))
    ends = {tokenizer.token_to_id(text) for text in ("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>")}
    assert renderer_of(folders["llama3"]).end_ids == ends


@pytest.mark.parametrize(
    ("generation", "config", "named"),
    [
        ({"eos_token_id": 3}, {"eos_token_id": 5}, {3, 5}),
        ({"eos_token_id": [3, 4]}, {}, {3, 4}),
        ({}, {"eos_token_id": [5]}, {5}),
        ({"eos_token_id": None}, {"text_config": {"eos_token_id": 6}}, {6}),
    ],
)
def test_engine_and_renderer_end_a_turn_at_the_same_ids_wherever_the_folder_names_them(
    folders, tmp_path, generation, config, named
):
    """The defect: the engine took the generation config's alone and sampled on past the others."""
    folder = small(tmp_path / "m", folders["qwen3"], "x")
    (folder / "generation_config.json").write_text(json.dumps(generation))
    told = json.loads((folders["qwen3"] / "config.json").read_text())
    told.pop("eos_token_id")
    (folder / "config.json").write_text(json.dumps(told | config))
    shutil.copy(folders["qwen3"] / "model.safetensors", folder)
    renderer = Renderer.load(folder)
    facts = facts_of(folder, kind="embedded", context_length=512, vocabulary=457, dtype="float32")
    assert facts.end_ids == renderer.end_ids == named | {renderer.encode("<|im_end|>")[0]}


def test_the_tokenizer_hash_tells_tokenizers_apart(folders):
    hashes = {name: Renderer.load(folder).tokenizer_hash for name, folder in folders.items()}
    assert hashes["qwen3"] != hashes["llama3"]
    assert hashes["qwen3"] == Renderer.load(folders["qwen3"]).tokenizer_hash


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "tokenizer.json").unlink(), "no tokenizer.json"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "cannot be read"),
        (
            lambda folder: (folder / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}'),
            "no chat template",
        ),
        (lambda folder: (folder / "tokenizer_config.json").write_text("{"), "is not JSON"),
        (lambda folder: (folder / "chat_template.json").write_text("{"), "is not JSON"),
        (lambda folder: (folder / "chat_template.jinja").write_text("{% if %}"), "does not parse"),
        (
            lambda folder: (folder / "tokenizer_config.json").write_text('{"chat_template": "x"}'),
            "end-of-turn",
        ),
    ],
)
def test_an_unusable_folder_is_one_plain_sentence(folders, tmp_path, spoil, words):
    folder = small(tmp_path / "m", folders["qwen3"], "x")
    spoil(folder)
    with pytest.raises(SettingError, match=words):
        Renderer.load(folder)


@pytest.mark.parametrize(
    ("template", "known"),
    [
        ('{{ reasoning_effort or "medium" }}', ["low"] * 3 + ["medium"] + ["high"] * 4),
        ("{% if reasoning_effort in ['none', 'high'] %}{% endif %}", ["none"] * 2 + ["high"] * 6),
    ],
)
def test_an_effort_becomes_the_nearest_that_the_template_names(template: str, known: list[str]):
    assert [known_effort(effort, template) for effort in EFFORTS] == known


def test_no_effort_is_no_thinking_unless_the_client_says_otherwise(folders, tmp_path):
    source = "{{ enable_thinking }} {{ thinking }} {{ reasoning_effort }}"
    renderer = Renderer.load(small(tmp_path / "model", folders["qwen3"], source))

    def text(**arguments) -> str:
        return renderer.text(Conversation(messages=(says("user", "x"),), template_args=arguments))

    assert text(reasoning_effort="none") == "False False low"
    assert text(reasoning_effort="xhigh") == "True True high"
    assert text(reasoning_effort="ultra") == "True True high"
    assert text(reasoning_effort="none", thinking=True) == "True True low"

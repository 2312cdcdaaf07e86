"""The shipped base model is an ordinary Hugging Face folder, and its template means the same everywhere."""

import json

import pytest

from afterwit.chat_format.render import Renderer
from afterwit.demo.tools.world import SYSTEM, TOOLS, ToolsWorld
from afterwit.demo.world import World
from afterwit.demo.worlds import WORLDS
from afterwit.turn import Conversation, Message

MODEL = ToolsWorld().folder / "model"
ARGUMENTS = {"path": "a-b.txt", "dry_run": True}


def _messages(arguments: object) -> list[dict[str, object]]:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "delete", "arguments": arguments}}
        for n in "12"
    ]
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "Delete a-b.txt."},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "would delete a-b.txt"},
        {"role": "tool", "tool_call_id": "c2", "content": "would delete a-b.txt"},
        {"role": "user", "content": [{"type": "text", "text": "Good."}]},
        {"role": "user", "content": "Thanks."},
    ]


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(MODEL)


def test_calls_and_results_render_in_the_hermes_form(tokenizer) -> None:
    text = tokenizer.apply_chat_template(
        _messages(ARGUMENTS), tools=list(TOOLS), add_generation_prompt=True, tokenize=False
    )
    call = '<tool_call>\n{"name": "delete", "arguments": {"path": "a-b.txt", "dry_run": true}}\n</tool_call>'
    result = "\n<tool_response>\nwould delete a-b.txt\n</tool_response>"
    tools = "\n".join(
        (
            "read(path)",
            "edit(path, old, new)",
            "write(path, text)",
            "copy(path, to)",
            "delete(path, dry_run)",
            "run(command)",
        )
    )
    assert text == (
        f"<|im_start|>system\nYou work in /work.\n<tools>\n{tools}\n</tools><|im_end|>\n"
        f"<|im_start|>user\nDelete a-b.txt.<|im_end|>\n<|im_start|>assistant\n{call}\n{call}<|im_end|>\n"
        f"<|im_start|>user{result}{result}<|im_end|>\n"
        "<|im_start|>user\nGood.<|im_end|>\n<|im_start|>user\nThanks.<|im_end|>\n<|im_start|>assistant\n"
    )


def test_arguments_as_text_and_as_an_object_render_alike(tokenizer) -> None:
    rendered = [
        tokenizer.apply_chat_template(_messages(given), tools=list(TOOLS), tokenize=False)
        for given in (ARGUMENTS, json.dumps(ARGUMENTS))
    ]
    assert rendered[0] == rendered[1]


def test_the_renderer_gives_the_ids_that_transformers_gives(tokenizer) -> None:
    messages = _messages(json.dumps(ARGUMENTS))
    messages[5] = {"role": "user", "content": "Good."}
    theirs = tokenizer.apply_chat_template(
        messages, tools=list(TOOLS), add_generation_prompt=True, return_dict=False
    )
    conversation = Conversation(messages=tuple(map(Message.from_dict, messages)), tools=TOOLS)
    assert list(Renderer.load(MODEL).prompt_ids(conversation)) == theirs


def test_one_turn_of_a_task_fits_the_context_many_times(tokenizer) -> None:
    ids = tokenizer.apply_chat_template(
        _messages(ARGUMENTS), tools=list(TOOLS), add_generation_prompt=True, return_dict=False
    )
    assert len(ids) < 130
    assert json.loads((MODEL / "config.json").read_text())["max_position_embeddings"] == 1024


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_a_shipped_model_is_small_and_says_how_it_was_made(world: World) -> None:
    model = world.folder / "model"
    assert sum(file.stat().st_size for file in model.iterdir()) < 1_500_000
    readme = (model / "README.md").read_text()
    assert f"python -m experiments.pretrain.pretrain --world {world.name} --out DIR --seed 0" in readme
    assert "15 %" in readme

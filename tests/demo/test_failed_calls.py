"""After a call that failed the demo's model goes on with its work: it does not answer as a judge."""

from __future__ import annotations

import json
from random import Random

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from afterwit.apps.demo.tools import tasks
from afterwit.apps.demo.worlds import WORLDS
from afterwit.core.message import ToolCall

WORLD = WORLDS["tools"]
FAILING = {
    "a file that is not there": {"name": "copy", "arguments": {"path": "{file}", "to": "{file}.bak"}},
    "a missing argument": {"name": "copy", "arguments": {"path": "{file}"}},
}


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(WORLD.folder / "model", dtype=torch.float32)


@pytest.mark.parametrize("name", FAILING)
def test_a_failed_call_is_not_answered_as_a_judge_answers(model, name: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(WORLD.folder / "model")
    task = tasks.KINDS["create"]("dev", Random(0))
    function = FAILING[name]
    arguments = json.dumps(function["arguments"]).replace("{file}", task.subject["new_file"])
    with WORLD.start(task) as state:
        result = state.act(ToolCall(id="1", name=function["name"], arguments=arguments))
    call = {"id": "1", "type": "function", "function": {"name": function["name"], "arguments": arguments}}
    messages = [
        {"role": "system", "content": WORLD.system},
        {"role": "user", "content": task.request},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": result},
    ]
    ids = tokenizer.apply_chat_template(
        messages, tools=list(WORLD.tools), add_generation_prompt=True, return_tensors="pt", return_dict=False
    )
    with torch.no_grad():
        probs_V = model(ids).logits[0, -1].softmax(-1)
    assert probs_V[tokenizer.convert_tokens_to_ids(r"\boxed{-1}")] < 0.1

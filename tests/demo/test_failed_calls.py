"""After a call that failed the demo's model goes on with its work: it does not answer as a judge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from afterwit.demo.tools import tasks
from afterwit.demo.worlds import WORLDS
from experiments.cases.tools import play
from experiments.pretrain.mistakes import mistaken

WORLD = WORLDS["tools"]
VERDICTS = (r"\boxed{-1}", r"\boxed{0}", r"\boxed{1}")
TALKS = 6


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(WORLD.folder / "model", dtype=torch.float32)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(WORLD.folder / "model")


def talks(folder: Path) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any]]]:
    """Talks of tasks that the model never saw, up to a call that failed; and the call that was meant."""
    random = Random(0)
    while True:
        task = tasks.draw("dev", random)
        follow = {rule for rule in task.rules if random.random() < 0.5}
        played = play(task, follow, folder, lambda step, files: [mistaken(step, files, random)])
        at = random.choice([index for index, failed in enumerate(played.failed) if failed])
        opening = [{"role": "system", "content": WORLD.system}, {"role": "user", "content": task.request}]
        yield [*opening, *played.messages[: 2 * at + 2]], played.messages[2 * at + 2]


@pytest.mark.slow  # the shipped model writes whole calls
def test_after_a_failed_call_it_makes_the_call_that_was_meant(model, tokenizer, tmp_path: Path) -> None:
    verdicts, right = tokenizer.convert_tokens_to_ids(list(VERDICTS)), 0
    for (messages, meant), _ in zip(talks(tmp_path), range(TALKS), strict=False):
        ids = tokenizer.apply_chat_template(
            messages,
            tools=list(WORLD.tools),
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=False,
        )
        with torch.no_grad():
            assert model(ids).logits[0, -1].softmax(-1)[verdicts].sum() < 0.01, messages[-1]
            said = model.generate(ids, max_new_tokens=60, do_sample=False, pad_token_id=0)
        call = meant["tool_calls"][0]["function"]
        text = tokenizer.decode(said[0, ids.shape[1] :], skip_special_tokens=True)
        right += (
            f'{{"name": "{call["name"]}", "arguments": {json.dumps(json.loads(call["arguments"]))}}}' in text
        )
    assert right >= 0.8 * TALKS

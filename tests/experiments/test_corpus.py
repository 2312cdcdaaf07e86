"""The pretraining data agrees with the model's README, and is the same for the same seed."""

from itertools import islice
from pathlib import Path
from random import Random

import pytest
from safetensors.torch import load_file
from tokenizers import Tokenizer

from afterwit.demo.tools import tasks as rules
from afterwit.demo.tools.world import ToolsWorld
from afterwit.judging.hinted_prompts import splice
from afterwit.turn import Conversation, Message, ToolCall
from experiments.pretrain import pretrain
from experiments.pretrain import tools_corpus as corpus
from experiments.pretrain.example import SPLICE, Example
from experiments.pretrain.noise import strewn
from experiments.pretrain.pretrain import END, START, _targets


def _drawn(number: int, seed: int = 0) -> list[Example]:
    return list(islice(corpus.samples(seed), number))


@pytest.fixture(scope="module")
def many() -> list[Example]:
    return _drawn(1000)


def test_the_same_seed_gives_the_same_conversations() -> None:
    assert _drawn(40) == _drawn(40)
    assert _drawn(40) != _drawn(40, seed=1)


def test_the_shares_are_those_of_the_readme(many: list[Example]) -> None:
    copies, drawn = [], []
    for sample in many:
        (drawn if sample.messages[0]["role"] == "system" else copies).append(sample)
    policy = [sample for sample in drawn if sample.tools]
    hinted = [sample for sample in policy if SPLICE in sample.messages[1]["content"]]
    assert abs(len(copies) / len(many) - 1 / 21) < 0.02
    assert abs(len(policy) / len(drawn) - 0.78) < 0.03
    assert abs(len(hinted) / len(policy) - 0.65) < 0.03


def test_without_a_hint_the_first_guarded_step_breaks_its_rule_in_85_of_100(many: list[Example]) -> None:
    broken = []
    for sample in many:
        if not sample.tools or SPLICE in sample.messages[1]["content"]:
            continue
        for message in sample.messages:
            for call in message.get("tool_calls", ()):
                step = rules.ToolStep.of(ToolCall(id="", **call["function"]))
                if step.name == "run":
                    broken.append("python3" in rules.broken(step, []))
    assert abs(sum(broken) / len(broken) - 0.85) < 0.06


def test_the_hint_is_spliced_as_the_live_system_splices_it() -> None:
    asked = Conversation(messages=(Message(role="user", content="Run a.py."),))
    assert (
        splice(asked, "Use python3 here.").messages[-1].content == "Run a.py." + SPLICE + "Use python3 here."
    )


def test_mistaken_calls_fail_are_followed_by_the_right_one_and_are_no_targets(many: list[Example]) -> None:
    calls = slips = 0
    for sample in many:
        if not sample.tools:
            assert not sample.mistakes
            continue
        made = [each for each in sample.messages if each.get("tool_calls")]
        said = [each["content"] for each in sample.messages if each["role"] == "tool"]
        calls, slips = calls + len(made), slips + len(sample.mistakes)
        for at, result in enumerate(said):
            assert result.startswith(("failed", "there is no")) == (at in sample.mistakes)
    assert 0.08 < slips / (calls - slips) < 0.16


def test_a_mistake_weighs_nothing_and_what_follows_it_all() -> None:
    words = Tokenizer.from_file(str(ToolsWorld().folder / "model" / "tokenizer.json"))
    text = f"{START}one{END}\n<|im_start|>user\n<tool_response>\nno\n</tool_response>{END}\n{START}two{END}\n"
    for mistakes, kept in ((frozenset[int](), ["one", "two"]), (frozenset({0}), ["two"])):
        ids, weights = _targets(text, words, mistakes)
        chosen = [id for id, weight in zip(ids, weights, strict=True) if weight == 1.0]
        said = words.decode(chosen, skip_special_tokens=True)
        assert said.split() == kept or said == "".join(kept)


def test_strewn_words_stand_between_the_texts_own_and_never_in_quotes() -> None:
    text, rng = 'Make "old oak" into "key" in lamp-door.txt. Thank you.', Random(0)
    for _ in range(200):
        said, left = strewn(text, 1.0, rng).split(" "), text.split(" ")
        assert 0 < len(said) - len(left) <= 3
        own = iter(said)
        assert all(word in own for word in left)
        assert '"old oak"' in " ".join(said)
    assert strewn(text, 0.0, rng) == text


def test_a_model_that_goes_on_has_its_tokenizer_and_other_weights(tmp_path: Path) -> None:
    start = ToolsWorld().folder / "model"
    pretrain.go_on(pretrain.CORPORA["tools"], start, tmp_path, seed=1, tokens=1, pool=20)
    assert (tmp_path / "tokenizer.json").read_bytes() == (start / "tokenizer.json").read_bytes()
    before, after = (load_file(folder / "model.safetensors") for folder in (start, tmp_path))
    assert before.keys() == after.keys()
    assert any((before[name] != after[name]).any() for name in before)
    assert all(after[name].isfinite().all() for name in after)

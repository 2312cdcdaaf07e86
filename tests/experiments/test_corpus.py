"""The pretraining data is what the model's README says, and the same for the same seed."""

from itertools import islice

import pytest

from afterwit.apps.demo.tools import rules
from afterwit.core.judging.hints import splice
from afterwit.core.message import Conversation, Message
from experiments.pretrain import tools_corpus as corpus
from experiments.pretrain.example import SPLICE, Example


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
                step = rules.Step.parse(call["function"]["name"], call["function"]["arguments"])
                if step.name == "run":
                    broken.append("python3" in rules.broken(step, []))
    assert abs(sum(broken) / len(broken) - 0.85) < 0.06


def test_the_hint_is_spliced_as_the_live_system_splices_it() -> None:
    asked = Conversation(messages=(Message(role="user", content="Run a.py."),))
    assert (
        splice(asked, "Use python3 here.").messages[-1].content == "Run a.py." + SPLICE + "Use python3 here."
    )

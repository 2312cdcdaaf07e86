"""The chat world's pretraining data agrees with its model's README, and is the same for the same seed."""

from itertools import islice
from random import Random
from statistics import fmean

import pytest

from afterwit.demo.chat import world as chat
from afterwit.demo.chat.world import SYSTEM, joined
from experiments.pretrain import chat_corpus as corpus
from experiments.pretrain.example import SPLICE, Example
from experiments.pretrain.hints import CHAT
from tests.fakes.judge import parse_evaluation, parse_hint


def _drawn(number: int, seed: int = 0) -> list[Example]:
    return list(islice(corpus.samples(seed), number))


@pytest.fixture(scope="module")
def many() -> list[Example]:
    return _drawn(6000)


def _policy(samples: list[Example]) -> list[Example]:
    return [sample for sample in samples if sample.messages[0]["content"] == SYSTEM]


def _hint(sample: Example) -> str | None:
    """The hint of a sample's last question."""
    parts = sample.messages[-2]["content"].split(SPLICE)
    return parts[1] if len(parts) == 2 else None


def test_the_same_seed_gives_the_same_conversations() -> None:
    assert _drawn(40) == _drawn(40)
    assert _drawn(40) != _drawn(40, seed=1)


def test_the_shares_are_those_of_the_readme(many: list[Example]) -> None:
    policy = _policy(many)
    drill = [sample for sample in many if sample.messages[0]["role"] == "user"]
    assert abs(len(drill) / len(many) - 1 / 6) < 0.02
    assert abs(len(policy) / (len(many) - len(drill)) - 0.7) < 0.03
    assert abs(fmean(_hint(sample) is not None for sample in policy) - 0.65) < 0.03


def test_without_a_hint_85_of_100_conversations_are_in_the_default_style_and_the_others_in_the_persons(
    many: list[Example],
) -> None:
    first = [
        chat.broken(sample.messages[2]["content"], chat.RULES[:3])
        for sample in _policy(many)
        if SPLICE not in sample.messages[1]["content"]
    ]
    assert set(first) == {(), ("short", "plain", "friendly")}
    assert abs(fmean(bool(found) for found in first) - 0.85) < 0.03


def test_a_hinted_answer_keeps_every_rule_that_the_judges_words_name(many: list[Example]) -> None:
    named = 0
    for sample in _policy(many):
        hint = (_hint(sample) or "").lower()
        asked = [
            rule
            for rule in chat.RULES[:3]
            if any(words in hint for words in chat.WORDINGS["judge_hints"][rule])
        ]
        assert not chat.broken(sample.messages[-1]["content"], asked)
        named += bool(asked)
    assert named > 1000


def test_a_judges_answers_parse_as_the_live_systems_judges_answers_do(many: list[Example]) -> None:
    for sample in many:
        if sample.messages[0]["role"] == "system" and sample.messages[0]["content"] != SYSTEM:
            said = sample.messages[-1]["content"]
            if "HINT_START" in sample.messages[0]["content"]:
                assert parse_hint(said, [sample.messages[1]["content"]], quote_words=8).value in (1, -1)
            else:
                assert parse_evaluation(said).value in (1, -1, 0)


def test_a_hint_of_the_judge_is_one_sentence_that_names_its_rules_in_their_order() -> None:
    assert joined(["keep it short"]) == "Keep it short."
    assert joined(["a", "b", "c"]) == "A, b and c."
    said = CHAT.official(chat.RULES, Random(0)).lower()
    places = [
        min(said.find(words) % 1000 for words in chat.WORDINGS["judge_hints"][rule]) for rule in chat.RULES
    ]
    assert places == sorted(places)

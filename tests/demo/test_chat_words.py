"""Names and wordings of the chat world are held out, and every question can be answered from its notes."""

from random import Random

import pytest

from afterwit.demo import words as names
from afterwit.demo.chat import world as chat
from afterwit.demo.words import part
from afterwit.judging import voting as hint_rules
from experiments.pretrain.hints import CHAT

SPLITS = ("train", "dev", "fresh")
LISTS = {
    f"{group} {name}": wordings
    for group in ("person", "complaints", "requests", "notes", "questions")
    for name, wordings in chat.WORDINGS[group].items()
}


@pytest.mark.parametrize("name", sorted(LISTS))
def test_no_wording_is_in_two_parts(name: str) -> None:
    train, dev, fresh = (set(part(LISTS[name], split)) - {""} for split in SPLITS)
    assert min(len(train), len(dev), len(fresh)) > 0
    assert not train & dev | train & fresh | dev & fresh
    assert train | dev | fresh == set(LISTS[name]) - {""}


@pytest.mark.parametrize("drawn", [names.person, names.thing])
def test_no_name_is_in_two_parts(drawn) -> None:
    train, dev, fresh = ({drawn(split, Random(seed)) for seed in range(300)} for split in SPLITS)
    assert not train & dev | train & fresh | dev & fresh


def test_the_same_seed_gives_the_same_tasks() -> None:
    drawn = [[chat.draw("fresh", rng) for _ in range(20)] for rng in (Random(5), Random(5))]
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("kind", sorted(set(chat.KINDS)))
def test_the_request_holds_the_facts_of_every_question_and_the_thing_it_is_about(kind: str) -> None:
    rng = Random(1)
    for _ in range(100):
        task = chat.of_kind(kind, "fresh", rng)
        assert all(chat.missing(task.request, facts) is None for facts in task.checks)
        assert len(task.follow_ups) == len(task.checks) - 1
        asked = [task.request, *task.follow_ups]
        for thing, question in zip(task.subject.values(), asked, strict=True):
            assert thing in question


def test_the_judges_own_hints_would_be_accepted_after_any_complaint() -> None:
    rng = Random(0)
    for number in range(1, 5):
        for split in SPLITS:
            for _ in range(50):
                broken = rng.sample(chat.RULES, number)
                said = [chat.SPEECH.complaint(broken, "oak lamp", split, rng)]
                assert hint_rules.hint_fault(CHAT.official(broken, rng), said, quote_words=8) is None


def test_a_complaint_has_words_for_every_broken_rule() -> None:
    rng = Random(0)
    said = chat.SPEECH.complaint(chat.RULES, "oak lamp", "fresh", rng)
    for rule in chat.RULES:
        assert any(
            wording.format(f="the oak lamp").lower() in said.lower()
            for wording in part(chat.WORDINGS["complaints"][rule], "fresh")
        )

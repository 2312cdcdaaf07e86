"""Held-out names and wordings are held out, and every task can be drawn from every part."""

from random import Random

import pytest

from afterwit.demo import words as names
from afterwit.demo.tools import tasks
from afterwit.demo.words import part
from afterwit.judging import voting as hint_rules

LISTS = {
    f"{group} {name}": wordings
    for group in ("person", "complaints", "requests")
    for name, wordings in tasks.WORDINGS[group].items()
    if name != "openings"  # "Please" opens requests of two parts
}


@pytest.mark.parametrize("name", sorted(LISTS))
def test_no_wording_is_in_two_parts(name: str) -> None:
    train, dev, fresh = (set(part(LISTS[name], split)) - {""} for split in ("train", "dev", "fresh"))
    assert min(len(train), len(dev), len(fresh)) > 0
    assert not train & dev | train & fresh | dev & fresh
    assert train | dev | fresh == set(LISTS[name]) - {""}


def test_no_name_is_in_two_parts() -> None:
    parts = [{names.stem(split, Random(seed)) for seed in range(300)} for split in ("train", "dev", "fresh")]
    assert not parts[0] & parts[1] | parts[0] & parts[2] | parts[1] & parts[2]


def test_the_same_seed_gives_the_same_tasks() -> None:
    drawn = [[tasks.draw("fresh", rng) for _ in range(20)] for rng in (Random(5), Random(5))]
    assert drawn[0] == drawn[1]


def test_an_edit_names_a_text_that_stands_once_in_its_file() -> None:
    rng = Random(0)
    for kind in ("edit", "edit_run"):
        for _ in range(300):
            about = tasks.of_kind(kind, "train", rng)
            assert about.files[about.subject["file"]].count(about.subject["old"]) == 1


def test_the_judges_own_hints_would_be_accepted_after_any_complaint() -> None:
    rng = Random(0)
    for rule, sentences in tasks.WORDINGS["judge_hints"].items():
        for split in ("train", "dev", "fresh"):
            said = [tasks.SPEECH.complaint((rule,), "a-b.txt", split, rng) for _ in range(50)]
            assert all(hint_rules.hint_fault(hint, said, quote_words=8) is None for hint in sentences)

"""A published model learns from one person: their words, and the results."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product

import pytest

from afterwit.judging.polarity import REPLIES
from afterwit.trial.people import words
from experiments.published import table
from tests.fakes.judge import parse_hint

WORDS = words()


@pytest.mark.parametrize("preference", ["short", "greeting"])
def test_no_wording_of_a_hint_quotes_a_complaint(preference: str) -> None:
    words = WORDS["preferences"][preference]
    for hint, said in product(words["hints"], words["said"]):
        vote = parse_hint(rf"\boxed{{1}} [HINT_START]{hint}[HINT_END]", [said], quote_words=8)
        assert vote.hint == hint


def test_the_table_has_a_row_for_each_run() -> None:
    point = {"conversations": 0, "version": 0, "share": 0.03, "kl": 0.0, "bad": 1, "worse": 0, "seconds": 9}
    later = point | {"conversations": 16, "version": 5, "share": 0.5, "kl": 0.06, "bad": 2}
    run = {
        "judge": "competent",
        "preference": "short",
        "seed": 4,
        "recorded": 0,
        "pause": 0,
        "in_prompt": False,
        "settings": {},
        "told": 0.78,
        "points": [point, later],
    }
    practised = run | {"seed": 5, "recorded": 40, "settings": {"learner.lr": 1e-4}}
    paused = run | {"seed": 6, "pause": 4}
    reminded = run | {"seed": 7, "in_prompt": True}
    lines = table([practised, reminded, paused, run]).splitlines()
    share = "0: 0.03 (0.00), 16: 0.50 (0.06)"
    assert lines[2] == f"| competent judge, `short` | 4 | 0.78 | {share} | 2 | 0 |"
    assert lines[3] == f"| competent judge, `short`, a pause after 4 | 6 | 0.78 | {share} | 2 | 0 |"
    assert lines[4].startswith("| competent judge, `short`, one correction in the prompt | 7 |")
    kind = "competent judge, `short`, 40 recorded, one correction, `learner.lr=0.0001`"
    assert lines[5] == f"| {kind} | 5 | 0.78 | {share.replace('16', '5')} | 2 | 0 |"


def test_no_shipped_reply_repeats_a_person_of_the_experiment() -> None:
    """No run of four words: the reader is measured on persons that it was not fitted on."""

    def runs(said: Iterable[str]) -> set[tuple[str, ...]]:
        words = [re.findall(r"\w+", each.lower()) for each in said]
        return {tuple(each[at : at + 4]) for each in words for at in range(len(each) - 3)}

    persons = [each for one in (WORDS["thanks"], *WORDS["preferences"].values()) for each in one["said"]]
    shipped = [each for said in (*REPLIES.texts.values(), *REPLIES.examples.values()) for each in said]
    assert not runs(persons) & runs(shipped)
    assert not set(persons) & set(shipped)

"""The effect of a turn, computed again by the update's own code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from afterwit.chat_format.render import Renderer
from afterwit.checkpoints.versions import Versions
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.trainer import Explained, Trainer, explain
from afterwit.learning.update import update
from afterwit.lifecycle import Reason
from afterwit.objective.settings import OBJECTIVES, ObjectiveSettings
from afterwit.verdict import JudgedTurn
from tests.fakes.judged_samples import a_sample
from tests.learning.updates import quiet
from tests.products import some

SETTINGS = LearnerSettings(device="cpu", lr=1e-2, max_tokens=512, keep_versions=5, packing="off")


def learned(
    home: Path, base: Path, renderer: Renderer, updates: int = 2, **chosen: object
) -> tuple[Trainer, JudgedTurn]:
    """A learner after some updates, and the turn of its first one."""
    names = {field: chosen.pop(field) for field in ("teacher", "stop_at_teacher") if field in chosen}
    trainer = Trainer(
        Versions(root=home, base=base),
        renderer,
        settings=replace(SETTINGS, **names),
        objective=ObjectiveSettings(**chosen),
    )
    trainer.begin(now=0.0)
    first = a_sample(renderer, 0)
    for number in range(updates):
        items, _ = trainer.build([first if number == 0 else a_sample(renderer, number)])
        trainer.train(items, [], now=1.0, progress=quiet)
    return trainer, first


def explained(trainer: Trainer, sample: JudgedTurn, trained_in: int | None) -> Explained:
    found = explain(trainer, sample, trained_in)
    assert isinstance(found, Explained)
    return found


@pytest.mark.parametrize("objective", some(2, OBJECTIVES))
def test_every_objectives_terms_are_explained_per_token(
    objective: str, base: Path, renderer: Renderer, tmp_path: Path
) -> None:
    trainer, sample = learned(
        tmp_path, base, renderer, 0, stop_at_teacher=False, objective=objective, beta=0.0
    )
    found = explained(trainer, sample, None)
    assert set(found.terms) == set(OBJECTIVES[objective].terms)
    for per_token in found.terms.values():
        assert len(per_token) == len(sample.turn.sampled.ids)
        assert any(any(token.values) for token in per_token)


@pytest.mark.parametrize("teacher", ["base", "live", "ema"])
def test_it_is_what_the_update_computed_with_the_weights_it_started_from(
    teacher: str, base: Path, renderer: Renderer, tmp_path: Path
) -> None:
    """The mean |log pi_T - log pi_old| that the manifest holds, for a turn of an update after the first."""
    objective = {"objective": "token_opd", "beta": 0.0, "hint_selection": "sequence_optimal"}
    trainer, _ = learned(tmp_path, base, renderer, 2, teacher=teacher, stop_at_teacher=False, **objective)
    found = explained(trainer, a_sample(renderer, 1), 2)
    assert (found.weights, found.exact) == (1, True)
    gaps = [abs(token.values[0]) for token in found.terms["opd"]]
    version = trainer.versions.get(2)
    assert version is not None
    assert sum(gaps) / len(gaps) == pytest.approx(version.metrics["teacher_gap"], rel=1e-4)


def test_an_answer_that_the_teacher_would_make_likelier_shows_that_nothing_is_pushed(
    base: Path, renderer: Renderer, tmp_path: Path
) -> None:
    """In its explanation, and in the effect that the ledger shows."""
    objective = {"objective": "token_opd", "beta": 0.0, "hint_selection": "longest"}
    seen = set()
    for number in range(1, 9):
        trainer, _ = learned(tmp_path / str(number), base, renderer, 1, **objective)
        sample = a_sample(renderer, number, reward=-1)
        pushed = [token.values[0] for token in explained(trainer, sample, None).terms["opd"]]
        items, _ = trainer.build([sample])
        _, effects = update(
            trainer.policy(), trainer.frozen, items, trainer.objective, trainer.settings, quiet, measured=1
        )
        assert effects[0].advantages == pytest.approx([round(each, 3) for each in pushed], abs=2e-3)
        assert sum(pushed) <= 0
        seen.add(any(pushed))
    assert seen == {True, False}


def test_top_k_shows_the_ids_that_were_moved_and_the_hint_that_was_chosen(
    base: Path, renderer: Renderer, tmp_path: Path
) -> None:
    trainer, sample = learned(tmp_path, base, renderer, 1, k=3, hint_selection="longest")
    found = explained(trainer, sample, 1)
    assert found.hints == (max(sample.verdict.hints, key=len),)
    assert {len(token.ids) for token in found.terms["opd"]} == {3}
    assert [token.values for token in found.terms["rl"]] == [(-1.0,)] * len(sample.turn.sampled.ids)


def test_weights_that_are_gone_are_said_to_be_gone_and_a_turn_that_trained_is_explained_however_old(
    base: Path, renderer: Renderer, tmp_path: Path
) -> None:
    trainer, _ = learned(tmp_path, base, renderer, 3)
    trainer.versions.prune(1)
    found = explained(trainer, a_sample(renderer, 1), 2)
    assert (found.weights, found.exact) == (3, False)
    trainer.settings = replace(trainer.settings, max_staleness=1)
    assert explained(trainer, a_sample(renderer, 1), 2).weights == 3
    assert explain(trainer, a_sample(renderer, 1), None) is Reason.STALE


def test_a_turn_that_cannot_train_says_why(base: Path, renderer: Renderer, tmp_path: Path) -> None:
    trainer, sample = learned(tmp_path, base, renderer, 0, objective="rl")
    assert explain(trainer, replace(sample, rl=False), None) is Reason.NO_SIGNAL

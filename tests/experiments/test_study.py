"""The study's plans are playable, its differences are paired, its page holds what the runs say."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from pathlib import Path

import pytest

from afterwit.demo.worlds import WORLDS
from experiments.simulation.plan import Point, RunResult, key
from experiments.study import page, plot
from experiments.study.factors import FACTORS, OWN, PLAYED, plans
from experiments.study.statistics import difference, measure
from tests.products import some

LATE = measure(24, "fresh", page.preference)


def _runs(name: str, values: Sequence[float], seeds: Sequence[int] | None = None) -> list[RunResult]:
    """A run a value, for the seeds 0, 1, ... by default, with the value as its last preference."""
    return [
        RunResult(
            name=name,
            facts={"seed": seed, "world": "tools"},
            points=tuple(
                Point(interactions=at, split="fresh", preference=value if at else 0.0, task_success=0.9)
                for at in (0, 12, 24)
            ),
            updates=90,
            cpu_s=50.0,
        )
        for seed, value in zip(seeds or range(len(values)), values, strict=True)
    ]


@pytest.mark.parametrize("world", some(2, sorted(WORLDS)))
def test_every_run_of_the_study_is_another_and_has_settings_that_are_there(world: str) -> None:
    planned = plans([world], (), 2)
    assert len({key(plan.facts()) for plan in planned}) == len(planned)
    assert [(plan.name, plan.seed) for plan in planned[:2]] == [(OWN, 0), (OWN, 1)]
    own = {factor.name for factor in PLAYED for variant in factor.variants if world in variant.worlds}
    assert {plan.name.partition(":")[0] for plan in planned} == {OWN, *own}


def test_a_variant_differs_from_a_worlds_own_settings_in_its_own_factor_only() -> None:
    own, *others = plans(["chat"], ("k", "epochs"), 1)
    ours = own.facts()
    for other in others:
        theirs = other.facts()
        apart = {name for name in ours if ours[name] != theirs[name]}
        changed = {
            name
            for name in {*ours["settings"], *theirs["settings"]}
            if ours["settings"].get(name) != theirs["settings"].get(name)
        }
        assert (apart, len(changed)) == ({"settings"}, 1)
        assert changed <= {"objective.k", "learner.epochs"}


def test_what_a_factor_is_compared_with_is_played_too() -> None:
    names = [plan.name for plan in plans(["tools"], ("pace",), 1)]
    assert names == [OWN, "objective: top-K OPD", "pace: batch 1, 4 epochs"]
    assert all(f.against == OWN or any(f.against in g.runs() for g in FACTORS) for f in FACTORS)


def test_differences_are_taken_seed_by_seed_and_their_interval_is_students() -> None:
    own, other = _runs(OWN, [0.5, 0.7, 0.9, 0.8]), _runs("k: 1", [0.4, 0.7, 0.7, 0.7])
    found = difference(other, own, LATE)
    each = [-0.1, 0.0, -0.2, -0.1]
    mean = sum(each) / 4
    error = sqrt(sum((one - mean) ** 2 for one in each) / 3 / 4)
    assert found.mean == pytest.approx(mean)
    assert found.half == pytest.approx(3.182 * error)
    assert found.pairs == 4


def test_two_seeds_give_a_difference_and_no_interval() -> None:
    found = difference(_runs("k: 1", [0.4, 0.6]), _runs(OWN, [0.5, 0.5]), LATE)
    assert (found.mean, found.half, found.beyond_noise) == (pytest.approx(0.0), None, False)


def test_a_seed_that_only_one_side_was_run_with_does_not_count() -> None:
    found = difference(_runs("k: 1", [0.2, 0.9], seeds=[3, 1]), _runs(OWN, [0.1, 0.5]), LATE)
    assert (found.mean, found.half, found.pairs) == (pytest.approx(0.4), None, 1)
    with pytest.raises(LookupError, match="no seed"):
        difference(_runs("k: 1", [0.2], seeds=[7]), _runs(OWN, [0.1]), LATE)


def test_a_constant_difference_is_beyond_noise_and_a_scattered_one_is_not() -> None:
    own = _runs(OWN, [0.5, 0.6, 0.7, 0.8])
    assert difference(_runs("k: 1", [0.3, 0.4, 0.5, 0.6]), own, LATE).beyond_noise
    assert not difference(_runs("k: 1", [0.9, 0.2, 0.9, 0.7]), own, LATE).beyond_noise


def test_only_the_text_between_a_pages_marks_is_replaced() -> None:
    text = "before\n<!-- runs: tools -->\nold\n<!-- /runs -->\nafter\n<!-- runs: chat -->\n<!-- /runs -->\n"
    done = page.filled(text, "tools", "new\n")
    assert done == text.replace("old\n", "new\n")
    assert page.filled(done, "tools", "new\n") == done
    with pytest.raises(ValueError, match="moon"):
        page.filled(text, "moon", "new\n")


def test_a_factor_is_compared_with_the_runs_it_names() -> None:
    runs = [
        *_runs(OWN, [0.5, 0.5]),
        *_runs("objective: top-K OPD", [0.7, 0.8]),
        *_runs("pace: batch 1, 4 epochs", [0.6, 0.7]),
    ]
    (row,) = [row for row in rows(runs) if row.label == "batch 1, 4 epochs"]
    assert {run.name for run in row.against} == {"objective: top-K OPD"}
    without = rows([run for run in runs if run.name != "objective: top-K OPD"])
    assert "batch 1, 4 epochs" not in [row.label for row in without]


def rows(runs: Sequence[RunResult]) -> list[plot.Row]:
    return plot.rows_of(page.by_name(runs, "tools"))


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    runs = [*_runs(OWN, [0.5, 0.6]), *_runs("k: 1", [0.3, 0.5]), *_runs("clip: 1.0", [0.3, 0.5])]
    plot.draw(runs, "tools", tmp_path / "study.png")
    assert (tmp_path / "study.png").read_bytes().startswith(b"\x89PNG")

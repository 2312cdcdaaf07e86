"""A store outside of the home is refused unless the home has the versions that the store knows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from afterwit import build
from afterwit.config import Settings, load
from afterwit.errors import StoreMismatch
from afterwit.running import train
from afterwit.running.serve import Runtime
from tests.shells.running.several_learners import LEARNER, fill, trained

SAID = r"store of another home: it knows 2 versions, the newest 2 of .* none of them is among the 0 in"


def settings_of(model: Path, home: Path, store: Path) -> Settings:
    given = {
        "model": str(model),
        "learner": LEARNER | {"batches_per_update": 1},
        "store": {"url": f"sqlite:{store}"},
        "serve": {"port": 0},
    }
    return load(home=home, below=given, environment={})


@pytest.fixture(scope="module")
def learned_twice(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shared")
    store, home = folder / "shared.db", folder / "one"
    settings = settings_of(model, home, store)
    fill(settings, model, home, *range(8))
    train.run(settings, home, forever=False)
    assert build.versions_of(home, model).newest() == 2
    return folder


@pytest.fixture
def shared(learned_twice: Path, tmp_path: Path) -> Path:
    """A store outside of the home `one`, which has learned twice."""
    return shutil.copytree(learned_twice, tmp_path, dirs_exist_ok=True) / "shared.db"


async def test_another_home_neither_learns_nor_serves_and_the_own_one_does(
    model: Path, tmp_path: Path, shared: Path
) -> None:
    other, own = tmp_path / "two", tmp_path / "one"
    fill(settings_of(model, own, shared), model, own, *range(8, 12))
    with pytest.raises(StoreMismatch, match=SAID):
        train.run(settings_of(model, other, shared), other, forever=False)
    with pytest.raises(StoreMismatch, match=SAID):
        async with Runtime(settings_of(model, other, shared), other, ("gateway",)):
            pass
    train.run(settings_of(model, own, shared), own, forever=False)
    assert len(trained(own, model)) == 12


@pytest.mark.slow
def test_versions_of_the_same_numbers_are_not_the_stores(model: Path, tmp_path: Path, shared: Path) -> None:
    other, own = tmp_path / "two", tmp_path / "one"
    fill(settings_of(model, other, tmp_path / "two.db"), model, other, *range(4))
    train.run(settings_of(model, other, tmp_path / "two.db"), other, forever=False)
    with pytest.raises(StoreMismatch, match="none of them is among the 1 in"):
        train.run(settings_of(model, other, shared), other, forever=False)
    shutil.rmtree(other / "versions")
    shutil.copytree(own / "versions", other / "versions")
    fill(settings_of(model, other, shared), model, other, *range(8, 12))
    train.run(settings_of(model, other, shared), other, forever=False)
    assert len(trained(other, model)) == 12


@pytest.mark.slow
def test_a_folder_that_is_lost_with_a_store_in_the_home_trains_its_turns_again(
    model: Path, tmp_path: Path
) -> None:
    settings = load(home=tmp_path, below={"model": str(model), "learner": LEARNER}, environment={})
    fill(settings, model, tmp_path, *range(4))
    train.run(settings, tmp_path, forever=False)
    shutil.rmtree(tmp_path / "versions")
    train.run(settings, tmp_path, forever=False)
    assert len(trained(tmp_path, model)) == 4

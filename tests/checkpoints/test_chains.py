"""Versions of several adapters in one folder: one sequence of numbers, a chain for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from afterwit.checkpoints.versions import Versions, roll_back
from afterwit.errors import SettingError, VersionTaken
from afterwit.version import versions_between
from tests.checkpoints.places import folder, opened
from tests.checkpoints.test_versions import fill, version

ANN, BOB = "key:ann", "key:bob"


@pytest.fixture(params=["alone", "shared"])
def versions(request: pytest.FixtureRequest, tmp_path: Path) -> Versions:
    """Of one machine; of one among several."""
    (tmp_path / "base").mkdir()
    root, base = tmp_path / "versions", tmp_path / "base"
    if request.param == "alone":
        return Versions(root=root, base=base)
    return Versions(root=root, base=base, remote=opened(folder(tmp_path)))


def grow(versions: Versions, *adapters: str) -> None:
    """The base, then a version of each of these adapters in turn."""
    with versions.writing():
        versions.write(version(0), lambda folder: None)
    for adapter in adapters:
        with versions.writing():
            chain = versions.of(adapter)
            made = version(versions.next(), parent=chain.newest(), adapter=adapter)
            versions.write(made, fill)


def test_each_adapter_sees_the_base_and_its_own_versions(versions: Versions) -> None:
    grow(versions, ANN, BOB, ANN)
    assert versions.numbers() == [0, 1, 2, 3]
    assert versions.chains() == {ANN: [0, 1, 3], BOB: [0, 2]}
    assert [each.parent for each in versions.of(ANN).all()] == [None, 0, 1]
    assert (versions.of(BOB).newest(), versions.of("key:new").newest(), versions.next()) == (2, 0, 4)


def test_a_number_is_given_once_whoever_takes_it(versions: Versions) -> None:
    grow(versions, ANN, BOB)
    with versions.writing(), pytest.raises(VersionTaken, match="version 2 cannot follow version 2"):
        versions.write(version(2, adapter=ANN), fill)


def test_a_rollback_takes_back_the_updates_of_its_adapter_alone(versions: Versions) -> None:
    grow(versions, ANN, BOB, ANN, BOB)
    made = roll_back(versions, 1, now=9.0)
    assert (made.adapter, made.number, made.parent, made.reverts) == (ANN, 5, 3, (3,))
    made = roll_back(versions.of(BOB), 0, now=9.0)
    assert (made.adapter, made.number, made.parent, made.reverts) == (BOB, 6, 4, (2, 4))
    with pytest.raises(SettingError, match="no version 1 of the adapter key:bob; there are: 0, 2, 4, 6"):
        roll_back(versions.of(BOB), 1, now=9.0)


def test_old_weights_go_by_the_adapters_own_count(versions: Versions) -> None:
    grow(versions, ANN, *[BOB] * 12)
    assert versions.of(BOB).prune(2) == (2, 3, 4, 5, 6, 7, 8, 10)
    assert versions.has_weights(1)
    kept = [number for number in versions.of(BOB).numbers() if versions.has_weights(number)]
    assert kept == [0, 9, 11, 12, 13]


def test_staleness_counts_the_versions_of_a_chain() -> None:
    chain = [0, 2, 7, 40]
    assert versions_between(0, 40, chain) == 3
    assert versions_between(2, 7, chain) == 1
    assert versions_between(7, 7, chain) == 0
    assert versions_between(41, 40, chain) == -1
    whole = range(50)
    assert all(versions_between(old, 40, whole) == 40 - old for old in range(41))

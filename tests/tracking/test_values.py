"""The numbers of a version."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from afterwit.judging.checks import Judged
from afterwit.progress import PersonRequest
from afterwit.promotion.episodes import Episode
from afterwit.store import Store
from afterwit.store.sqlite import SqliteStore
from afterwit.tracking.values import MOST, newest_values, of_judge, of_people, of_version
from afterwit.verdict import Source
from afterwit.version import Origin, Probe, Version
from tests.tracking.told import METRICS, commit


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = SqliteStore.open(tmp_path / "store.db", fingerprint=None)
    yield opened
    opened.close()


def end(store: Store, turn: str, *, complaint: bool, at: float) -> None:
    ended = Episode(
        turn=turn,
        session="s",
        source="me",
        version=0,
        bad=None,
        complaint=complaint,
        kind="text",
        approved=(),
    )
    store.end_episode(ended, [], steps=[], now=at)


def judged(seq: int, reward: int) -> Judged:
    return Judged(
        seq=seq,
        turn=f"t{seq}",
        session="s",
        reward=reward,
        source=Source.VOTES,
        hinted=reward < 0,
        version=0,
        at=1.0,
        feedback=None,
        ended_well=None,
        votes=(),
    )


def test_a_version_is_told_with_its_loss_hints_times_suite_judge_and_people(store: Store) -> None:
    commit(store, 0, 1)
    record = store.versions()[1]
    outcomes = [judged(seq, reward) for seq, reward in enumerate((1, 1, -1, 0))]
    requests = [
        PersonRequest(session="s", source="me", kind="edit", complaint=bad, at=1.0) for bad in (True, False)
    ]
    found = {**of_version(record), **of_judge(outcomes), **of_people(requests)}
    assert found == pytest.approx(
        {
            "version/trained": 0,
            "version/replayed": 0,
            "learner/loss": 1.0,
            "learner/samples": 8,
            "learner/opd_samples": 2,
            "learner/reference_kl": 0.01,
            "learner/hint_rate": 0.25,
            "time/passes": 3,
            "time/update": 40,
            "time/publish": 2,
            "suite/kept": 0.9,
            "suite/items": 10,
            "suite/evidence": 0.5,
            "judge/turns": 4,
            "judge/hint_rate": 0.25,
            "judge/good": 0.5,
            "judge/bad": 0.25,
            "people/requests": 2,
            "people/complaint_rate": 0.5,
        }
    )


def test_what_was_not_measured_is_left_out_and_so_is_what_is_not_finite(store: Store) -> None:
    commit(store, 0)
    made = Version(
        number=1,
        parent=0,
        origin=Origin.ROLLBACK,
        restores=0,
        created=1.0,
        probe=Probe(ids=(1,), logprobs=()),
        metrics={"loss": 1e308 * 10, "samples": 0.0},
    )
    store.commit_version(made, now=2.0)
    found = of_version(store.versions()[1]) | of_judge([])
    assert math.isinf(made.metrics["loss"])
    assert found.keys() == {
        "version/trained",
        "version/replayed",
        "version/restores",
        "learner/samples",
        "time/update",
        "judge/turns",
    }


def test_complaints_belong_to_the_version_that_came_next(store: Store) -> None:
    told = []
    complaints = [[(1040.0, True)], [(1041.0, True), (1900.0, False)], [(2900.0, False)]]
    commit(store, 0)
    for number, ended in enumerate(complaints, 1):
        for at, complaint in ended:
            end(store, f"t{at}", complaint=complaint, at=at)
        commit(store, number)
        told.append(values(store))
    assert [each["people/requests"] for each in told] == [1, 2, 1]
    assert [each["people/complaint_rate"] for each in told] == [1, 0.5, 0]


def values(store: Store, most: int = MOST) -> dict[str, float]:
    found = newest_values(store, most)
    assert found is not None
    return found[1]


def test_a_time_that_the_store_returns_too_little_of_gives_no_shares(store: Store) -> None:
    commit(store, 0)
    for number, at in enumerate((100.0, 900.0, 1000.0)):
        end(store, f"t{number}", complaint=False, at=at)
    commit(store, 1)
    first = values(store, most=2)
    commit(store, 2)
    assert "people/requests" not in first
    assert values(store, most=2)["judge/turns"] == 0
    assert METRICS["samples"] == values(store, most=2)["learner/samples"]

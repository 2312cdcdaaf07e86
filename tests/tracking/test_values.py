"""The numbers of a version."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from afterwit.progress import Request
from afterwit.promotion.episodes import Episode
from afterwit.store import Outcome, Store
from afterwit.store.sqlite import SqliteStore
from afterwit.tracking.history import SETTLE_S, news
from afterwit.tracking.values import values_of
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


def test_a_version_is_told_with_its_loss_hints_times_suite_judge_and_people(store: Store) -> None:
    commit(store, 0, 1)
    record = store.versions()[1]
    outcomes = [Outcome(reward=reward, hinted=reward < 0, version=0, at=1.0) for reward in (1, 1, -1, 0)]
    requests = [
        Request(session="s", source="me", kind="edit", complaint=bad, at=1.0) for bad in (True, False)
    ]
    found = values_of(record, outcomes=outcomes, requests=requests)
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
    found = values_of(store.versions()[1], outcomes=[], requests=None)
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
    commit(store, 0, 1, 2, 3)
    for number, (at, complaint) in enumerate(
        [(1040.0, True), (1041.0, True), (1900.0, False), (2900.0, False)]
    ):
        end(store, f"t{number}", complaint=complaint, at=at)
    told = {each.version: each.values for each in news(store, after=0, now=1e9)}
    assert [told[n]["people/requests"] for n in (1, 2, 3)] == [1, 2, 1]
    assert [told[n]["people/complaint_rate"] for n in (1, 2, 3)] == [1, 0.5, 0]


def test_a_version_is_told_once_it_is_served_or_will_surely_not_be(store: Store) -> None:
    commit(store, 0, 1)
    made = Version(number=2, parent=1, origin=Origin.UPDATE, created=0.0, probe=Probe(ids=(1,), logprobs=()))
    store.commit_version(made, now=5000.0)
    assert [each.version for each in news(store, after=0, now=5001.0)] == [1]
    (late,) = news(store, after=1, now=5000.0 + SETTLE_S)
    assert (late.version, late.at, "time/publish" in late.values) == (2, 5000.0, False)
    assert news(store, after=2, now=1e9) == []


def test_of_a_time_that_the_store_tells_too_little_of_nothing_is_said(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("afterwit.tracking.history.NEWEST", 2)
    commit(store, 0, 1, 2)
    for number, at in enumerate((100.0, 1800.0, 1900.0)):
        end(store, f"t{number}", complaint=False, at=at)
    told = {each.version: each.values for each in news(store, after=0, now=1e9)}
    assert "people/requests" not in told[1]
    assert told[2]["judge/turns"] == 0
    assert METRICS["samples"] == told[2]["learner/samples"]

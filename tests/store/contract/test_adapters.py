"""Versions, episodes, events and suite items are found by their adapter."""

from __future__ import annotations

from afterwit.promotion.episodes import Episode, Event, EventKind
from afterwit.promotion.suite import SuiteItem
from afterwit.store import Store
from afterwit.version import Origin, Probe, Version
from tests.store.examples import add

ANN, BOB = "key:ann", "key:bob"
PROBE = Probe(ids=(1, 2), logprobs=(-1.0,))


def version(number: int, adapter: str, parent: int) -> Version:
    return Version(
        number=number, parent=parent, origin=Origin.UPDATE, created=1.0, probe=PROBE, adapter=adapter
    )


def ended(turn: str, adapter: str, *, version: int = 0) -> Episode:
    return Episode(
        turn=turn,
        session=turn,
        source="key/agent",
        version=version,
        bad=None,
        complaint=False,
        kind="text",
        approved=(turn,),
        adapter=adapter,
    )


def item(turn: str, since: float) -> SuiteItem:
    return SuiteItem(
        turn=turn,
        stratum="text",
        source="key/agent",
        version=0,
        since=since,
        prompt_ids=(1,),
        ids=(2,),
        sure=(True,),
    )


def test_a_turn_is_read_back_with_its_adapter(store: Store) -> None:
    add(store, "mine", adapter=ANN)
    add(store, "all")
    assert store.turn("mine").sampled_turn.adapter == ANN
    assert store.turn("all").sampled_turn.adapter == "shared"


def test_versions_are_listed_by_adapter_each_with_the_base(store: Store) -> None:
    store.commit_version(
        Version(number=0, parent=None, origin=Origin.BASE, created=0.0, probe=PROBE), now=1.0
    )
    for made in (version(1, ANN, 0), version(2, BOB, 0), version(3, ANN, 1)):
        store.commit_version(made, now=1.0)
    for number in (1, 2):
        store.published(number, now=2.0)
    assert [each.number for each in store.versions()] == [0, 1, 2, 3]
    assert [each.number for each in store.versions(ANN)] == [0, 1, 3]
    assert [each.adapter for each in store.versions(BOB)] == ["shared", BOB]
    assert [store.latest_published(each) for each in (ANN, BOB, "shared")] == [1, 2, 0]


def test_episodes_the_suite_and_events_are_each_adapters_own(store: Store) -> None:
    for number, adapter in enumerate((ANN, BOB, ANN)):
        turn = f"turn{number}"
        store.end_episode(ended(turn, adapter), [item(turn, number)], steps=[turn], now=1.0)
    assert [each.turn for each in store.episodes(ANN)] == ["turn0", "turn2"]
    assert [each.turn for each in store.suite(BOB)] == ["turn1"]
    assert len(store.episodes()) == len(store.suite()) == 3
    assert store.ended_badly(until=0, adapter=ANN) == (0, 2)
    store.decided(Event(kind=EventKind.ALARM, at=2.0, version=1, evidence=200.0, words="bad", adapter=ANN))
    assert (store.episodes(ANN), len(store.episodes(BOB))) == ([], 1)
    assert [each.kind for each in store.events(ANN)] == [EventKind.ALARM]
    assert store.events(BOB) == []


def test_what_one_approves_retires_nothing_of_anothers(store: Store) -> None:
    store.end_episode(ended("old", ANN), [item("old", 0.0)], steps=["old"], now=1.0)
    for number in range(40):
        turn = f"new{number}"
        store.end_episode(ended(turn, BOB), [item(turn, 1.0 + number)], steps=[turn], now=1.0)
    assert store.retire(["old"]) == 0
    assert [each.turn for each in store.suite(ANN)] == ["old"]
    assert len(store.suite(BOB)) == 32


def test_an_adapter_pauses_by_itself_and_all_resume_together(store: Store) -> None:
    store.pause("held", now=1.0, adapter=ANN)
    store.pause("held again", now=2.0, adapter=ANN)
    assert store.paused() is None
    (pause,) = store.paused_adapters().values()
    assert (pause.since, pause.words) == (1.0, "held again")
    store.pause("tired", now=3.0)
    assert store.resume() is not None
    assert (store.paused(), store.paused_adapters(), store.resume()) == (None, {}, None)

"""Episodes, the suite, and the events of promotion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from afterwit.errors import TurnNotFound
from afterwit.promotion.episodes import BadEnd, Episode, Event, EventKind
from afterwit.promotion.suite import PromotionSettings, SuiteItem, suite_result
from afterwit.store import Store
from afterwit.turn import Finish
from tests.store.examples import a_version, add


def ended(turn: str, bad: BadEnd | None = None, version: int = 1) -> Episode:
    return Episode(
        turn=turn,
        session="s",
        source="laptop",
        version=version,
        bad=bad,
        complaint=False,
        kind="text",
        approved=(),
    )


def item(turn: str, since: float, stratum: str = "write") -> SuiteItem:
    return SuiteItem(
        turn=turn,
        stratum=stratum,
        source="laptop",
        version=0,
        since=since,
        prompt_ids=(1, 2),
        ids=(3, 4),
        sure=(True, False),
    )


def end(
    store: Store, turn: str, bad: BadEnd | None = None, items: Sequence[SuiteItem] = (), now: float = 1.0
) -> None:
    store.end_episode(ended(turn, bad), items, steps=[turn], now=now)


def event(kind: EventKind, version: int = 1) -> Event:
    return Event(kind=kind, at=2.0, version=version, evidence=30.0, words="why")


def test_a_line_is_a_turn_behind_those_of_its_session_that_lead_to_it(store: Store) -> None:
    add(store, "a")
    add(store, "b", parent="a")
    add(store, "c", parent="b")
    add(store, "d", parent="b")
    assert [record.turn.id for record in store.line("c")] == ["a", "b", "c"]
    assert [record.turn.id for record in store.line("c", limit=2)] == ["b", "c"]
    with pytest.raises(TurnNotFound):
        store.line("nobody")


def test_episodes_come_in_the_order_in_which_they_ended(store: Store) -> None:
    end(store, "b")
    end(store, "a", BadEnd.DISPLEASED)
    assert [(each.turn, each.bad) for each in store.episodes()] == [("b", None), ("a", BadEnd.DISPLEASED)]


def test_an_episode_that_is_judged_again_keeps_its_place(store: Store) -> None:
    end(store, "a")
    end(store, "b")
    end(store, "a", BadEnd.DISPLEASED, now=5.0)
    assert [(each.turn, each.bad) for each in store.episodes()] == [("a", BadEnd.DISPLEASED), ("b", None)]


def test_an_episode_that_goes_on_is_forgotten_for_the_one_that_it_became(store: Store) -> None:
    end(store, "a", BadEnd.NO_END)
    store.end_episode(ended("c"), [], steps=["a", "b", "c"], now=2.0)
    assert [each.turn for each in store.episodes()] == ["c"]


def test_only_episodes_since_the_last_alarm_count(store: Store) -> None:
    end(store, "a", BadEnd.DISPLEASED)
    store.decided(event(EventKind.ALARM))
    end(store, "b")
    store.decided(event(EventKind.CONFIRM))
    assert [each.turn for each in store.episodes()] == ["b"]


def test_bad_ends_are_counted_up_to_a_version(store: Store) -> None:
    end(store, "a", BadEnd.DISPLEASED)
    end(store, "b")
    assert store.ended_badly(until=1) == (1, 2)
    assert store.ended_badly(until=1, newest=1) == (0, 1)
    assert store.ended_badly(until=0) == (0, 0)
    store.commit_version(replace(a_version(0), parent=None), now=1.0)
    store.commit_version(a_version(1, restores=0), now=1.0)
    assert store.ended_badly(until=0) == (1, 2)


def served(store: Store, *versions: int) -> None:
    for version in versions:
        store.end_episode(ended(f"by{version}", version=version), [], steps=[f"by{version}"], now=1.0)


def test_a_version_is_measured_by_those_it_was_learned_from_and_not_by_those_taken_back(store: Store) -> None:
    store.commit_version(replace(a_version(0), parent=None), now=1.0)
    store.commit_version(a_version(1), now=1.0)
    store.commit_version(a_version(2), now=1.0)
    store.commit_version(a_version(3, restores=1, reverts=(2,)), now=1.0)
    store.commit_version(a_version(4), now=1.0)
    store.commit_version(a_version(5), now=1.0)
    served(store, 0, 1, 2, 3, 4, 5)
    assert store.ended_badly(until=4) == (0, 4)
    assert store.ended_badly(until=1) == (0, 3)
    assert [each.turn for each in store.episodes(after=4)] == ["by2", "by5"]
    assert [each.turn for each in store.episodes(after=1)] == ["by2", "by4", "by5"]


def test_what_an_alarm_takes_back_does_not_count_against_what_is_learned_after_it(store: Store) -> None:
    store.commit_version(replace(a_version(0), parent=None), now=1.0)
    for number in (1, 2, 3):
        store.commit_version(a_version(number), now=1.0)
    served(store, 1)
    store.decided(event(EventKind.ALARM, 2))
    served(store, 0, 2, 3)
    assert [each.turn for each in store.episodes(after=0)] == ["by3"]
    assert [each.turn for each in store.episodes()] == ["by0", "by2", "by3"]


def test_items_are_kept_whole_and_come_newest_first(store: Store) -> None:
    first, second = item("a", 1.0), item("b", 2.0)
    end(store, "a", items=[first])
    end(store, "b", items=[second])
    assert store.suite() == [second, first]


def test_an_item_that_is_no_longer_approved_leaves(store: Store) -> None:
    end(store, "a", items=[item("a", 1.0)])
    end(store, "a", BadEnd.DISPLEASED)
    assert store.suite() == []


def test_a_stratum_keeps_its_newest_items(store: Store) -> None:
    end(store, "other", items=[item("other", 0.0, "read")])
    for at in range(50):
        end(store, f"t{at:02}", items=[item(f"t{at:02}", float(at))])
    kept = [each.turn for each in store.suite()]
    assert len(kept) > PromotionSettings().per_kind
    assert kept[0] == "t49"
    assert "t00" not in kept
    assert "other" in kept


def test_a_lost_item_retires_only_if_its_stratum_was_approved_twice_since(store: Store) -> None:
    for at, turn in enumerate(("a", "b", "c")):
        end(store, turn, items=[item(turn, float(at))])
    assert store.retire(["b", "c"]) == 0
    assert store.retire(["a"]) == 1
    assert [each.turn for each in store.suite()] == ["c", "b"]


def test_an_item_is_withdrawn_whatever_was_approved_since(store: Store) -> None:
    for at, turn in enumerate("abc"):
        end(store, turn, items=[item(turn, float(at))])
    assert store.withdraw(["c", "a", "nobody"]) == 2
    assert [each.turn for each in store.suite()] == ["b"]


def test_the_suite_outlives_content_that_went_for_want_of_room(store: Store) -> None:
    add(store, "a")
    end(store, "a", items=[item("a", 1.0)])
    store.expire_open(older_than=10.0, now=10.0)
    assert store.prune(now=100.0, max_age_s=None, max_bytes=0) == 1
    assert [each.turn for each in store.suite()] == ["a"]


def test_events_come_in_their_order(store: Store) -> None:
    events = [event(EventKind.HOLD), event(EventKind.ALARM, 3)]
    for each in events:
        store.decided(each)
    assert store.events() == events


def test_a_tool_call_that_nothing_followed_is_found_once(store: Store) -> None:
    add(store, "a", finish=Finish.TOOL_CALLS)
    add(store, "b")
    assert store.unended(before=0.0) == []
    assert [record.turn.id for record in store.unended(before=1e12)] == ["a"]
    end(store, "a", BadEnd.NO_END)
    assert store.unended(before=1e12) == []


def test_what_a_version_lost_is_kept_with_it(store: Store) -> None:
    suite = suite_result([(item("a", 1.0), False), (item("b", 2.0), True)], may_lose=0.1)
    store.commit_version(replace(a_version(0), parent=None), now=1.0)
    store.commit_version(a_version(1, suite=suite), now=1.0)
    assert [version.suite for version in store.versions()] == [None, suite]


def test_the_first_and_the_newest_episodes_come_in_their_order(store: Store) -> None:
    for number, turn in enumerate("abcd"):
        end(store, turn, now=float(number))
    assert [each.turn for each in store.all_episodes(limit=2)] == ["c", "d"]
    assert [each.turn for each in store.all_episodes(limit=2, newest=False)] == ["a", "b"]
    assert [each.turn for each in store.all_episodes()] == ["a", "b", "c", "d"]

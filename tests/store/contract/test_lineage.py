"""Versions follow the manifests; nothing trains twice."""

from __future__ import annotations

import pytest

from afterwit.errors import StoreError
from afterwit.lifecycle import Reason, State
from afterwit.store import Filter, Store
from afterwit.verdict import Feedback
from afterwit.version import Origin
from tests.store.examples import NO, PRAISED, a_version, add, add_judged

BASE = a_version(0, parent=None, origin=Origin.BASE)


def states(store: Store, *names: str) -> list[State]:
    return [store.turn(name).state for name in names]


def known(store: Store) -> list[int]:
    return [row.number for row in store.versions()]


def test_a_manifest_trains_its_turns_once(store: Store) -> None:
    add_judged(store, "a")
    store.claim("learn", owner="learner", limit=1, lease_s=10, now=0.0)
    manifest = a_version(1, ["a", "ghost"], metrics={"loss": 0.5})
    for now in (1.0, 2.0):
        store.commit_version(manifest, now=now)
    record = store.turn("a")
    assert (record.state, record.owner, record.trained_in) == (State.TRAINED, None, (1,))
    (row,) = store.versions()
    assert (row.number, row.trained, row.replayed, row.metrics) == (1, 2, 0, {"loss": 0.5})


def test_a_number_with_other_turns_is_refused(store: Store) -> None:
    store.commit_version(a_version(1, ["a"]), now=0.0)
    with pytest.raises(StoreError, match="version 1 is known with other turns"):
        store.commit_version(a_version(1, ["b"]), now=0.0)


def test_replaying_leaves_a_trained_turn_as_it_is(store: Store) -> None:
    add_judged(store, "a")
    store.commit_version(a_version(1, ["a"]), now=0.0)
    store.commit_version(a_version(2, replayed=("a",)), now=0.0)
    record = store.turn("a")
    assert (record.state, record.trained_in, record.replayed_in) == (State.TRAINED, (1,), (2,))
    assert [(row.trained, row.replayed) for row in store.versions()] == [(1, 0), (0, 1)]


def test_what_a_power_loss_undid_of_a_turn_is_done_again_by_the_manifest_that_names_it(store: Store) -> None:
    for name in "ab":
        add(store, name)
    store.answer("b", NO, answered_by=None, now=1.0)
    store.reconcile([BASE, a_version(1, ["a", "b", "lost"])], now=2.0)
    assert states(store, "a", "b") == [State.TRAINED] * 2


@pytest.mark.parametrize("late", ["feedback", "skipped"])
def test_a_manifest_wins_over_what_was_said_after_its_rename(store: Store, late: str) -> None:
    add_judged(store, "a")
    store.claim("learn", owner="learner", limit=1, lease_s=10, now=0.0)
    if late == "feedback":
        assert store.feedback("a", Feedback(reward=-1), now=20.0)[0] is State.ANSWERED
    else:
        store.skip(["a"], Reason.STALE, now=20.0)
    store.reconcile([BASE, a_version(1, ["a"])], now=21.0)
    assert known(store) == [0, 1]
    assert states(store, "a") == [State.TRAINED]


def test_a_rollback_marks_the_turns_it_takes_back(store: Store) -> None:
    for name in "ab":
        add_judged(store, name)
    store.commit_version(a_version(1, ["a"]), now=0.0)
    store.commit_version(a_version(2, ["b"]), now=0.0)
    store.commit_version(a_version(3, origin=Origin.ROLLBACK, restores=1, reverts=(2,)), now=0.0)
    assert states(store, "a", "b") == [State.TRAINED, State.SKIPPED]
    assert store.turn("b").reason is Reason.REVERTED
    assert store.claim("learn", owner="learner", limit=9, lease_s=10, now=9.0) == []


def test_a_rollback_forward_holds_its_turns_again_so_that_they_train_once(store: Store) -> None:
    for name in "abc":
        add_judged(store, name)
    for number, name in enumerate("abc", start=1):
        store.commit_version(a_version(number, [name]), now=0.0)
    store.commit_version(a_version(4, origin=Origin.ROLLBACK, restores=1, reverts=(2, 3)), now=0.0)
    assert store.requeue(["c"], now=1.0) == 1
    store.commit_version(a_version(5, origin=Origin.ROLLBACK, restores=3, returns=(2, 3)), now=2.0)
    assert states(store, *"abc") == [State.TRAINED] * 3
    assert store.requeue(["b", "c"], now=3.0) == 0
    assert store.waiting(now=9.0) == []


def test_a_turn_that_trained_again_meanwhile_is_held_by_either(store: Store) -> None:
    add_judged(store, "a")
    store.commit_version(a_version(1, ["a"]), now=0.0)
    store.commit_version(a_version(2, origin=Origin.ROLLBACK, restores=0, reverts=(1,)), now=0.0)
    store.requeue(["a"], now=1.0)
    store.commit_version(a_version(3, ["a"]), now=2.0)
    store.commit_version(
        a_version(4, origin=Origin.ROLLBACK, restores=1, reverts=(3,), returns=(1,)), now=3.0
    )
    assert states(store, "a") == [State.TRAINED]
    store.commit_version(a_version(5, origin=Origin.ROLLBACK, restores=0, reverts=(1,)), now=4.0)
    assert store.turn("a").reason is Reason.REVERTED


def test_a_rollback_that_is_known_before_what_it_takes_back_still_takes_it_back(store: Store) -> None:
    """The learner wrote version 1, and a rollback came before it committed the version to the store."""
    add_judged(store, "a")
    store.commit_version(a_version(2, origin=Origin.ROLLBACK, restores=0, reverts=(1,)), now=0.0)
    store.commit_version(a_version(1, ["a"]), now=1.0)
    assert store.turn("a").reason is Reason.REVERTED


def test_a_lost_rollback_forward_leaves_what_the_one_before_it_left(store: Store) -> None:
    add_judged(store, "a")
    back = a_version(2, origin=Origin.ROLLBACK, restores=0, reverts=(1,))
    manifests = [BASE, a_version(1, ["a"]), back]
    for manifest in [*manifests, a_version(3, origin=Origin.ROLLBACK, restores=1, returns=(1,))]:
        store.commit_version(manifest, now=0.0)
    assert states(store, "a") == [State.TRAINED]
    store.reconcile(manifests, now=1.0)
    assert known(store) == [0, 1, 2]
    assert store.turn("a").reason is Reason.REVERTED


def test_turns_after_the_last_checkpoint_return_to_judged(store: Store) -> None:
    for name in "ab":
        add_judged(store, name)
    manifests = [BASE, a_version(1, ["a"])]
    for manifest in [*manifests, a_version(2, ["b"])]:
        store.commit_version(manifest, now=0.0)
    assert store.reconcile(manifests, now=1.0) == ()
    assert known(store) == [0, 1]
    assert states(store, "a", "b") == [State.TRAINED, State.JUDGED]
    assert store.turn("b").trained_in == ()
    store.commit_version(a_version(2, ["b"], metrics={"again": 1.0}), now=2.0)
    assert states(store, "b") == [State.TRAINED]


def test_feedback_on_a_turn_whose_checkpoint_was_lost_has_it_judged_anew(store: Store) -> None:
    add_judged(store, "a")
    store.commit_version(a_version(1, ["a"]), now=0.0)
    store.feedback("a", Feedback(reward=1), now=1.0)
    store.reconcile([BASE], now=2.0)
    assert states(store, "a") == [State.ANSWERED]


def test_a_version_whose_folder_was_pruned_is_kept_while_a_descendant_is_there(store: Store) -> None:
    for name in "abc":
        add_judged(store, name)
    manifests = [BASE, a_version(1, ["a"]), a_version(2, ["b"]), a_version(3, ["c"])]
    for manifest in manifests:
        store.commit_version(manifest, now=0.0)
    store.reconcile(manifests[-1:], now=1.0)
    assert known(store) == [0, 1, 2, 3]
    assert states(store, *"abc") == [State.TRAINED] * 3


def test_a_manifest_that_was_never_committed_is_taken_over(store: Store) -> None:
    add_judged(store, "a")
    store.claim("learn", owner="learner", limit=1, lease_s=1e9, now=0.0)
    assert store.reconcile([BASE, a_version(1, ["a"])], now=1.0) == ()
    assert known(store) == [0, 1]
    assert states(store, "a") == [State.TRAINED]


def test_leases_that_a_dead_learner_left_are_freed(store: Store) -> None:
    add_judged(store, "a")
    store.claim("learn", owner="dead", limit=1, lease_s=1e9, now=0.0)
    assert store.reconcile([BASE], now=1.0) == ("a",)
    assert len(store.waiting(now=1.0)) == 1
    assert store.turn("a").attempts == 0


def test_a_death_counts_against_the_turns_that_the_dead_learner_held(store: Store) -> None:
    for name in "abc":
        add_judged(store, name)
    store.claim("learn", owner="dead", limit=2, lease_s=1e9, now=0.0)
    assert store.reconcile([BASE, a_version(1, ["a"])], now=1.0, error="it died") == ("b",)
    found = [(record.attempts, record.error) for record in map(store.turn, "abc")]
    assert found == [(0, None), (1, "it died"), (0, None)]


def test_a_lost_rollback_gives_the_reverted_turns_back(store: Store) -> None:
    add_judged(store, "a")
    manifests = [BASE, a_version(1, ["a"])]
    for manifest in manifests:
        store.commit_version(manifest, now=0.0)
    store.commit_version(a_version(2, origin=Origin.ROLLBACK, restores=0, reverts=(1,)), now=0.0)
    store.reconcile(manifests, now=1.0)
    assert known(store) == [0, 1]
    assert states(store, "a") == [State.TRAINED]


def test_reconciling_twice_changes_nothing(store: Store) -> None:
    for name in "ab":
        add_judged(store, name)
    manifests = [BASE, a_version(1, ["a"])]
    store.commit_version(a_version(2, ["b"], parent=0), now=0.0)
    store.reconcile(manifests, now=1.0)
    before = store.versions(), [store.turn(name) for name in "ab"]
    assert store.reconcile(manifests, now=2.0) == ()
    assert before == (store.versions(), [store.turn(name) for name in "ab"])


def test_a_number_taken_by_another_manifest_gives_its_turns_back(store: Store) -> None:
    for turn in ("a", "b", "c"):
        add_judged(store, turn)
    store.commit_version(a_version(1, ["a"]), now=0.0)
    store.commit_version(a_version(2, ["b"]), now=0.0)
    store.reconcile([a_version(1, ["c"])], now=1.0)
    assert known(store) == [1]
    assert states(store, *"abc") == [State.JUDGED, State.JUDGED, State.TRAINED]
    store.reconcile([a_version(1, ["c"])], now=2.0)
    assert known(store) == [1]


def test_the_newest_published_version_is_known(store: Store) -> None:
    assert store.latest_published() == 0
    for number in (1, 2):
        store.commit_version(a_version(number), now=0.0)
    store.published(1, now=5.0)
    assert store.latest_published() == 1
    assert [row.published_at for row in store.versions()] == [5.0, None]
    with pytest.raises(StoreError, match="there is no version 9"):
        store.published(9, now=6.0)


def test_replay_draws_from_trained_turns_with_hints_that_are_not_too_old(store: Store) -> None:
    for number in range(8):
        name = f"t{number}"
        add_judged(store, name)
    add_judged(store, "praised", PRAISED)
    store.commit_version(a_version(1, [*(f"t{n}" for n in range(8)), "praised"]), now=0.0)

    def drawn(seed: int) -> list[str]:
        return [r.turn.id for r in store.trained_with_hints(limit=4, min_version=0, seed=seed)]

    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(seed)) for seed in range(9)}) > 1
    assert "praised" not in {name for seed in range(20) for name in drawn(seed)}
    assert store.trained_with_hints(limit=4, min_version=1, seed=0) == []


def test_turns_are_listed_by_version(store: Store) -> None:
    for name in "ab":
        add_judged(store, name)
    store.commit_version(a_version(1, ["b"]), now=0.0)
    assert [r.turn.id for r in store.turns(Filter(version=1))] == ["b"]

"""The folder of versions is the truth: whatever became of it, the store agrees with it again."""

from __future__ import annotations

from afterwit.core.lifecycle import State
from afterwit.store import Store
from tests.store.examples import a_version, add_judged


def test_a_number_taken_by_another_manifest_gives_its_turns_back(store: Store) -> None:
    for turn in ("a", "b", "c"):
        add_judged(store, turn)
    store.commit_version(a_version(1, ["a"]), now=0.0)
    store.commit_version(a_version(2, ["b"]), now=0.0)
    told = store.reconcile([a_version(1, ["c"])], now=1.0)
    assert (set(told.lost), told.committed, told.returned) == ({1, 2}, (1,), 2)
    assert [store.turn(turn).state for turn in ("a", "b", "c")] == [State.JUDGED, State.JUDGED, State.TRAINED]
    assert store.reconcile([a_version(1, ["c"])], now=2.0).lost == ()

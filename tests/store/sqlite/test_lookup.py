"""Parents are found without reading the whole conversation."""

from __future__ import annotations

from afterwit.store import Store
from afterwit.store.sqlite.lookup import FIRST_HASHES
from tests.store.examples import a_turn


def test_a_deep_conversation_spares_the_turns_long_before_its_parent(store: Store) -> None:
    hashes = [f"h{depth}".encode() for depth in range(300)]
    common = {"delivered": True, "reason": None, "now": 0.0}
    for depth in range(1, 299, 2):
        pair = {"prompt_hash": hashes[depth - 1], "full_hash": hashes[depth]}
        store.add_turn(a_turn(f"t{depth}"), **pair, depth=depth, full_depth=depth + 1, **common)
    assert len(store.candidates("key/agent", hashes, [])) <= FIRST_HASHES

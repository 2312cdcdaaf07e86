"""What pruning does to the file."""

from __future__ import annotations

from pathlib import Path

from afterwit.core.lifecycle import Reason
from afterwit.core.message import Conversation, Message
from afterwit.store import Store
from tests.store.examples import add

LONG = Conversation(messages=(Message(role="user", content="x" * 20_000),))


def test_room_that_pruning_made_is_used_again(path: Path, store: Store) -> None:
    def fill(tag: str) -> int:
        for number in range(100):
            add(store, f"{tag}{number}", reason=Reason.SIDE_TURN, conversation=LONG)
        store.claim("judge", owner="nobody", limit=1, lease_s=1, now=0.0)
        return path.stat().st_size

    fill("a")
    store.prune(now=1.0, max_age_s=0.0, max_bytes=None)
    first = fill("b")
    for tag in "cde":
        store.prune(now=1.0, max_age_s=0.0, max_bytes=None)
        last = fill(tag)
    assert last < 1.2 * first

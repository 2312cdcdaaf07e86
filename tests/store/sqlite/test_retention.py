"""What pruning does to the file."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from afterwit.core.lifecycle import Reason
from afterwit.core.message import Conversation, Message
from afterwit.core.verdict import Feedback
from afterwit.store import Store
from tests.store.examples import add

LONG = Conversation(messages=(Message(role="user", content="x" * 20_000),))


def bytes_of(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


@pytest.mark.parametrize("together", [False, True], ids=["alone", "with other calls"])
def test_what_was_pruned_is_nowhere_in_the_files(path: Path, store: Store, together: bool) -> None:
    secret = Conversation(messages=(Message(role="user", content="the vault opens with 4711" + "x" * 9000),))
    said = (Message(role="user", content="no, it is 4712"),)
    for name in ("kept", "gone", "kept too"):
        add(store, name, conversation=secret if name == "gone" else LONG, reason=Reason.SIDE_TURN)
    store.answer("gone", said, answered_by=None, now=0.0)
    store.feedback("gone", Feedback(text="it was 4713"), now=0.0)
    add(store, "young", now=100.0)
    for needle in (b"4711", b"4712", b"4713"):
        assert needle in bytes_of(path.parent)
    with store.transaction() if together else nullcontext():
        store.prune(now=100.0, max_age_s=50.0, max_bytes=None)
    for needle in (b"4711", b"4712", b"4713"):
        assert needle not in bytes_of(path.parent)


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

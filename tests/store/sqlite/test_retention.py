"""The effect of pruning on the file."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from afterwit.lifecycle import Reason
from afterwit.promotion.episodes import Episode
from afterwit.promotion.suite import SuiteItem
from afterwit.store import Store
from afterwit.store.rows import pack_ids
from afterwit.turn import Conversation, Message
from afterwit.verdict import Feedback
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


def test_the_suite_is_no_longer_kept_than_what_was_said(path: Path, store: Store) -> None:
    ids = tuple(range(70_000, 70_064))

    def approve(turn: str, *, since: float) -> None:
        item = SuiteItem(
            turn=turn,
            stratum="text",
            source="s",
            version=0,
            since=since,
            prompt_ids=ids if turn != "young" else (1, 2),
            ids=(1,),
            sure=(True,),
        )
        end = Episode(
            turn=turn,
            session=turn,
            source="s",
            version=0,
            bad=None,
            complaint=False,
            kind="text",
            approved=(),
        )
        store.end_episode(end, [item], steps=[turn], now=since)

    for turn, since in (("old", 10.0), ("approved late", 90.0), ("gone", 10.0), ("young", 90.0)):
        if turn != "gone":
            add(store, turn, now=0.0 if turn != "young" else 80.0)
        approve(turn, since=since)
    packed = pack_ids(ids)
    assert packed in bytes_of(path.parent)
    assert store.prune(now=100.0, max_age_s=50.0, max_bytes=None) == 0
    assert [item.turn for item in store.suite()] == ["young"]
    assert packed not in bytes_of(path.parent)


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

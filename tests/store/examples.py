"""Turns, verdicts and versions for tests of the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from afterwit.lifecycle import Reason
from afterwit.store import Store
from afterwit.turn import Message, Turn
from afterwit.verdict import Question, Source, Verdict, Vote
from afterwit.version import Origin, Probe, Version
from tests.fakes.turns import a_turn

__all__ = [
    "HINTED",
    "NO",
    "PANNED",
    "PRAISED",
    "THANKS",
    "a_turn",
    "a_version",
    "add",
    "add_judged",
]

NO = (Message(role="user", content="No, the other file."),)
THANKS = (Message(role="user", content="Thanks, that was it."),)
HINTED = Verdict(
    reward=-1,
    source=Source.VOTES,
    hints=("Open the file that was named.",),
    votes=(
        Vote(question=Question.EVALUATION, words="\\boxed{-1}", value=-1),
        Vote(question=Question.HINT, words="\\boxed{1} ...", value=1, hint="Open the file that was named."),
        Vote(question=Question.HINT, words="?", value=None, rejected="no box"),
    ),
)
PRAISED = Verdict(reward=1, source=Source.VOTES)
PANNED = Verdict(
    reward=-1, source=Source.VOTES, votes=(Vote(question=Question.HINT, words="\\boxed{-1}", value=-1),)
)
"""A complaint in which the judge found no hint."""


def add(store: Store, id: str, *, reason: Reason | None = None, now: float = 0.0, **changes: Any) -> Turn:
    """A turn whose hashes are made from its id, unless `changes` have a `prompt_hash`."""
    hashes = {
        "prompt_hash": changes.pop("prompt_hash", f"prompt {id}".encode()),
        "full_hash": f"full {id}".encode(),
    }
    turn = a_turn(id, **{"created": now} | changes)
    store.add_turn(turn, **hashes, depth=1, full_depth=2, delivered=True, reason=reason, now=now)
    return turn


def add_judged(store: Store, id: str, verdict: Verdict = HINTED, *, now: float = 0.0, **changes: Any) -> None:
    """A turn that waits for the learner."""
    add(store, id, now=now, **changes)
    store.answer(id, NO, answered_by=None, now=now)
    taken = store.claim("judge", owner="judge", limit=1000, lease_s=60, now=now)
    assert id in [record.turn.id for record in taken]
    store.judged(id, verdict, rl=True, opd=bool(verdict.hints), reason=None, owner="judge", now=now)
    others = [record.turn.id for record in taken if record.turn.id != id]
    store.release(others, owner="judge", now=now)


def a_version(number: int, turns: Sequence[str] = (), **changes: Any) -> Version:
    fields: dict[str, Any] = {
        "number": number,
        "parent": number - 1 if number else None,
        "origin": Origin.UPDATE,
        "created": 0.0,
        "turns": tuple(turns),
        "probe": Probe(ids=(1, 2), logprobs=(-1.0,)),
    }
    return Version(**fields | changes)

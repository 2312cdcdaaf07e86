"""The overview: is it learning, what waits, what happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request

from afterwit.gateway.context import Gateway
from afterwit.gateway.status import stages_of
from afterwit.lifecycle import Reason, ReasonClass, State
from afterwit.page.curves import complaints, outcome_curves
from afterwit.page.lists import Facts
from afterwit.promotion.episodes import Event
from afterwit.promotion.watch import requests_of
from afterwit.store import Counts, Pause, Status, Store, VersionRecord
from afterwit.text import counted
from afterwit.version import Origin

MOST_TURNS, MOST_VERSIONS, MOST_LINES = 1_000, 50, 40
"""The newest turns, or requests, versions and lines that the view reads."""


def overview(request: Request, gateway: Gateway, store: Store) -> Facts:
    """Whether it learns, what waits, what was not learned from, and what happened."""
    counts, outcomes = store.counts(), store.judged_turns(limit=MOST_TURNS)
    versions = store.newest_versions(limit=MOST_VERSIONS)
    pause = store.paused()
    stages = stages_of(gateway, store.statuses())
    newest = requests_of(store.all_episodes(limit=MOST_TURNS))
    _, good, bad, _ = outcome_curves(outcomes)
    return {
        "learning": learning(versions, counts, stages, pause),
        "pause": pause,
        "complaints": complaints(newest),
        "bad": bad,
        "good": good,
        "waits": [
            (state, counts.states.get(state, 0)) for state in (State.OPEN, State.ANSWERED, State.JUDGED)
        ],
        "refused": refused(counts),
        "stages": stages,
        "lines": happened(versions, store.events(), limit=MOST_LINES),
    }


def learning(
    versions: Sequence[VersionRecord], counts: Counts, stages: Sequence[Status], pause: Pause | None
) -> Mapping[str, Any]:
    """Whether it learns, its newest version, and the status of the learner, or of a stage with a problem."""
    newest = {status.stage: status for status in sorted(stages, key=lambda status: status.at)}
    learner, judge = newest.get("learn"), newest.get("judge")
    fault = next((stage for stage in (learner, judge) if stage is not None and not stage.ok), None)
    last = next((version for version in versions if version.origin is not Origin.BASE), None)
    trained = counts.states.get(State.TRAINED, 0)
    if pause is not None:
        sentence = "No: learning is paused."
    elif fault is not None and fault is learner:
        sentence = "Not now: the learner reports a problem."
    elif fault is not None:
        sentence = (
            "Only from evidence that needs no judge." if last else "Not yet, and the judge has a problem."
        )
    elif last is None:
        sentence = "Not yet: nothing has been learned so far."
    elif not trained and last.origin is not Origin.UPDATE:
        sentence = "Yes, but all that it had learned was taken back or forgotten."
    else:
        sentence = f"Yes: {counted(trained, 'turn')} so far."
    did = None if last is None else _did(last)
    return {"sentence": sentence, "ok": fault is None, "says": fault or learner, "last": last, "did": did}


def refused(counts: Counts) -> list[tuple[str, list[tuple[Reason, int]]]]:
    """Reasons of turns that were not learned from, by their class, the most frequent first."""
    titles = {
        ReasonClass.FAILED: "Something failed",
        ReasonClass.NOTHING_TO_LEARN: "There was nothing to learn",
        ReasonClass.NOT_TRAINABLE: "It cannot train",
    }
    ordered = sorted(counts.reasons.items(), key=lambda pair: -pair[1])
    classes = [(title, [pair for pair in ordered if pair[0].kind is kind]) for kind, title in titles.items()]
    return [(title, reasons) for title, reasons in classes if reasons]


class Line(NamedTuple):
    """One thing that happened. `kind` is a class of the page's style."""

    at: float
    kind: str
    words: str
    version: int


def happened(versions: Sequence[VersionRecord], events: Sequence[Event], *, limit: int) -> list[Line]:
    """Updates, publications, holds and alarms, the newest first."""
    found = []
    for event in events[-limit:]:
        words = event.words[:1].upper() + event.words[1:] + "."
        found.append(Line(event.at, event.kind.value, words, event.version))
    for version in versions:
        number, origin = version.number, version.origin
        if origin is Origin.BASE:
            continue
        kind = "learned" if origin is Origin.UPDATE else origin.value
        found.append(Line(version.committed_at, kind, f"Version {number} {_did(version)}.", number))
        if version.published_at is not None:
            found.append(Line(version.published_at, "served", f"Version {number} is served.", number))
    return sorted(found, key=lambda each: each.at, reverse=True)[:limit]


def _did(version: VersionRecord) -> str:
    """What a later version than the base did, as a sentence without its subject."""
    if version.origin is Origin.ROLLBACK:
        return f"takes learning back: it has the weights of version {version.restores}"
    if version.origin is Origin.REPLAY:
        return "is earlier updates, run again without what was forgotten"
    again = f", and from {version.replayed} again" if version.replayed else ""
    return f"learned from {counted(version.trained, 'turn')}{again}"

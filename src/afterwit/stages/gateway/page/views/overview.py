"""The first page: is it learning, is it helping, what waits, what was not learned from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request

from afterwit.core.lifecycle import CLASS_OF, Reason, ReasonClass, State
from afterwit.core.version import Origin
from afterwit.stages.gateway.context import Gateway
from afterwit.stages.gateway.page import plot
from afterwit.stages.gateway.page.helping import WINDOW, helping, shares
from afterwit.stages.gateway.page.views.curves import complaints
from afterwit.stages.gateway.page.views.log import lines
from afterwit.stages.gateway.page.views.view import Wanted
from afterwit.stages.gateway.page.words import count
from afterwit.stages.gateway.status.health import health_of
from afterwit.stages.promotion.requests import requests_of
from afterwit.store import Counts, Pause, Status, Store, VersionRecord

TURNS = 1_000
NEWEST = 8
UPDATES = 50


def view(request: Request, gateway: Gateway) -> Wanted:
    """The overview."""

    def read(store: Store) -> Mapping[str, Any]:
        counts, outcomes = store.counts(), store.outcomes(limit=TURNS)
        versions = store.newest_versions(limit=UPDATES)
        pause = store.paused()
        stages = health_of(gateway, store.statuses(), pause).stages
        asked = requests_of(store.all_episodes(limit=TURNS))
        first = asked if len(asked) < TURNS else requests_of(store.all_episodes(limit=WINDOW, newest=False))
        return {
            "learning": learning(versions, counts, stages, pause),
            "pause": pause,
            "helping": helping(first, asked, len(asked)),
            "requests": len(asked),
            "complaints": complaints(asked),
            "bad": plot.line(
                shares([each.reward == -1 for each in outcomes]), title="Turns found bad", share=True
            ),
            "good": plot.line(
                shares([each.reward == 1 for each in outcomes]), title="Turns found good", share=True
            ),
            "waits": [
                (state, counts.states.get(state, 0)) for state in (State.OPEN, State.ANSWERED, State.JUDGED)
            ],
            "learned": counts.states.get(State.TRAINED, 0),
            "skipped": counts.states.get(State.SKIPPED, 0),
            "refused": refused(counts),
            "stages": stages,
            "lines": lines(versions, store.events(), limit=NEWEST),
            "base_url": f"{request.url.scheme}://{request.url.netloc}/v1",
            "empty": not counts.states,
        }

    return Wanted(template="overview.html", read=read)


def learning(
    versions: Sequence[VersionRecord], counts: Counts, stages: Sequence[Status], pause: Pause | None
) -> Mapping[str, Any]:
    """Whether it learns: a sentence, when it last did, and the status that explains it: of a stage that has a
    problem, else the learner's."""
    learner, judge = (_newest(stages, name) for name in ("learn", "judge"))
    updates = [version for version in versions if version.origin is Origin.UPDATE]
    trained = counts.states.get(State.TRAINED, 0)
    if pause is not None:
        sentence = "No: learning is paused."
    elif learner is not None and not learner.ok:
        sentence = "Not now: the learner reports a problem."
    elif judge is not None and not judge.ok:
        sentence = "Only from what needs no judge." if updates else "Not yet, and the judge has a problem."
    elif not updates:
        sentence = "Not yet: nothing has been learned so far."
    else:
        sentence = f"Yes: {count(trained, 'turn')} so far."
    return {
        "sentence": sentence,
        "ok": all(stage is None or stage.ok for stage in (learner, judge)),
        "says": next((stage for stage in (learner, judge) if stage is not None and not stage.ok), learner),
        "last": updates[0] if updates else None,
    }


def _newest(stages: Sequence[Status], name: str) -> Status | None:
    found = [status for status in stages if status.stage == name]
    return max(found, key=lambda status: status.at, default=None)


def refused(counts: Counts) -> list[tuple[str, list[tuple[Reason, int]]]]:
    """Reasons of turns that were not learned from, by their class, the most frequent first."""
    titles = {
        ReasonClass.FAILED: "Something failed",
        ReasonClass.NOTHING_TO_LEARN: "There was nothing to learn",
        ReasonClass.NOT_TRAINABLE: "It cannot train",
    }
    found = []
    for kind, title in titles.items():
        reasons = [(reason, number) for reason, number in counts.reasons.items() if CLASS_OF[reason] is kind]
        if reasons:
            found.append((title, sorted(reasons, key=lambda pair: -pair[1])))
    return found

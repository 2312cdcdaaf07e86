"""The screen of `afterwit status`, from the store alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from afterwit.adapters import SHARED
from afterwit.learning.schedule import (
    NOW,
    NextBatch,
    duration,
    in_their_chains,
    is_stale,
    next_of_all,
    next_update,
)
from afterwit.learning.settings import LearnerSettings
from afterwit.lifecycle import State
from afterwit.store import Pause, Status, Store, VersionRecord
from afterwit.text import counted

AGO_S = 60.0
"""A time less than this many seconds ago is "just now"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """One screen."""

    at: float
    serving: bool
    """Whether a gateway runs over this home."""
    learning: bool
    """Whether a learner runs over this home."""
    enabled: bool
    """Whether the settings enable learning."""
    pause: Pause | None
    version: int
    """The version that serves, or served last."""
    newest: VersionRecord | None
    """The newest version; None before the first."""
    turns: Mapping[State, int]
    in_update: int
    """Turns that train at this moment."""
    next: NextBatch
    next_words: str
    """Why the next update has not begun."""
    stages: tuple[Status, ...]
    own: int
    """Personal adapters that have been trained."""
    paused_adapters: Mapping[str, Pause]


def overview(
    store: Store, settings: LearnerSettings, *, serving: bool, learning: bool, now: float
) -> Overview:
    """`settings`: those that choose the learner's next batch."""
    versions = store.versions()
    newest = versions[-1].number if versions else 0
    waiting = in_their_chains(store.waiting(now=now), _chains(versions))
    fresh = [turn for turn in waiting if not is_stale(turn, settings, NOW)]
    choice = next_of_all(settings, fresh, store.paused_adapters(), now=now)
    return Overview(
        at=now,
        serving=serving,
        learning=learning,
        enabled=settings.enabled,
        pause=store.paused(),
        version=store.latest_published(),
        newest=versions[-1] if newest else None,
        turns=store.counts().states,
        in_update=store.in_update(now=now),
        next=choice,
        next_words=next_update(choice, settings),
        stages=tuple(store.statuses()),
        own=len({each.adapter for each in versions} - {SHARED}),
        paused_adapters=store.paused_adapters(),
    )


def _chains(versions: Sequence[VersionRecord]) -> dict[str, list[int]]:
    """By adapter, the numbers of the base and of its versions."""
    chains: dict[str, list[int]] = {}
    for version in versions:
        if version.number:
            chains.setdefault(version.adapter, [0]).append(version.number)
    return chains


def lines(found: Overview) -> Iterator[tuple[str, str]]:
    """A name and a sentence for each line of the screen; problems come first."""
    yield from (_stage(found, status) for status in found.stages if not status.ok)
    yield "learning", _learning(found)
    yield "next update", found.next_words if found.pause is None else f"none while paused; {found.next_words}"
    yield "last update", _last(found)
    yield "serving", _serving(found)
    if found.own:
        yield "adapters", _adapters(found)
    yield "turns", _turns(found) or "none yet"
    yield from (_stage(found, status) for status in found.stages if status.ok)


def _stage(found: Overview, status: Status) -> tuple[str, str]:
    return f"{status.name}{'' if status.ok else ' !'}", f"{status.message} ({_ago(found, status.at)})"


def _learning(found: Overview) -> str:
    if found.pause is not None:
        why = f" ({found.pause.words})" if found.pause.words else ""
        rest = f"; {counted(found.in_update, 'turn')} of an update that had begun" if found.in_update else ""
        return f"paused {_ago(found, found.pause.since)}{why}: `afterwit resume` goes on{rest}"
    if found.in_update:
        return f"an update of {counted(found.in_update, 'turn')} is under way"
    if found.learning:
        return "on; no update is under way"
    if not found.enabled:
        return "off (learner.enabled = false)"
    if found.serving and any(status.stage == "learn" for status in found.stages):
        return "no learner runs here now; the line `learn` says why"
    return "no learner runs over this home: `afterwit serve` or `afterwit train` starts one"


def _turns(found: Overview) -> str:
    return ", ".join(f"{found.turns[state]} {state.value}" for state in State if state in found.turns)


def _serving(found: Overview) -> str:
    runs = "" if found.serving else "; no gateway runs over this home"
    newest = found.newest
    made = newest.number if newest is not None and newest.adapter == SHARED else 0
    newer = f"; version {made} is not served yet" if made and made != found.version else ""
    return f"version {found.version}{newer}{runs}"


def _adapters(found: Overview) -> str:
    held = [f"{name} ({pause.words})" for name, pause in found.paused_adapters.items()]
    words = f"; paused: {'; '.join(held)}" if held else ""
    trained = "adapter has" if found.own == 1 else "adapters have"
    return f"{found.own} personal {trained} been trained{words}"


def _last(found: Overview) -> str:
    newest = found.newest
    if newest is None:
        return "none yet"
    whose = "" if newest.adapter == SHARED else f" of {newest.adapter}"
    made = f"version {newest.number}{whose}, {_ago(found, newest.created)}"
    if newest.restores is not None:
        return f"{made}: went back to version {newest.restores}"
    return f"{made}, from {counted(newest.trained, 'turn')}"


def _ago(found: Overview, then: float) -> str:
    seconds = found.at - then
    return "just now" if seconds < AGO_S else f"{duration(seconds)} ago"

"""The screen of `afterwit status`, from the store alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from afterwit.build import store_of_home
from afterwit.checkpoints.manifest import held
from afterwit.config import home_of, load
from afterwit.home.home import learner_lock, stage_lock
from afterwit.learning.health import STAGE
from afterwit.learning.schedule import (
    NOW,
    NextBatch,
    duration,
    in_their_chains,
    is_stale,
    next_of_all,
    next_update,
    with_note,
)
from afterwit.learning.settings import LearnerSettings
from afterwit.lifecycle import State
from afterwit.printing.terminal import Terminal, write_json
from afterwit.progress import progress
from afterwit.promotion.watch import requests_asked
from afterwit.store import Pause, Status, Store, VersionRecord
from afterwit.text import counted
from afterwit.turn import SHARED
from afterwit.version import Origin

WAITS = {
    State.OPEN: " (no reply yet)",
    State.ANSWERED: " (wait for the judge)",
    State.JUDGED: " (for the learner)",
}
AGO_S = 60.0
"""A time less than this many seconds ago is "just now"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """One screen."""

    at: float
    serving: bool
    learning: bool
    enabled: bool
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
    helping: str
    """Whether people correct it less, as `afterwit progress` answers."""
    own: int
    """Personal adapters that have been trained."""
    paused_adapters: Mapping[str, Pause]


def print_status(home: Path | None, *, json: bool) -> None:
    folder, settings = home_of(home), load(home=home).learner
    with store_of_home(folder) as store:
        found = overview(
            store,
            with_note(settings, store.note("learn")),
            serving=held(stage_lock(folder, "gateway")),
            learning=held(learner_lock(folder)),
            now=time.time(),
        )
    if json:
        write_json(found)
        return
    console = Terminal()
    for name, words in lines(found):
        console.say(f"{name:<13} {words}", style="bold red" if name.endswith("!") else None)


def overview(
    store: Store, settings: LearnerSettings, *, serving: bool, learning: bool, now: float
) -> Overview:
    """`settings`: those that choose the learner's next batch."""
    versions, paused = store.versions(), store.paused_adapters()
    chains: dict[str, list[int]] = {}
    for version in versions:
        if version.number:
            chains.setdefault(version.adapter, [0]).append(version.number)
    waiting = in_their_chains(store.waiting(now=now), chains)
    fresh = [turn for turn in waiting if not is_stale(turn, settings, NOW)]
    choice, whole = next_of_all(settings, fresh, paused, now=now), progress(requests_asked(store))
    return Overview(
        at=now,
        serving=serving,
        learning=learning,
        enabled=settings.enabled,
        pause=store.paused(),
        version=store.latest_published(),
        newest=versions[-1] if versions and versions[-1].number else None,
        turns=store.counts().states,
        in_update=store.in_update(now=now),
        next=choice,
        next_words=next_update(choice, settings, later=store.tried_later(now=now)),
        stages=tuple(store.statuses()),
        helping=whole.sentence,
        own=len({each.adapter for each in versions} - {SHARED}),
        paused_adapters=paused,
    )


def lines(found: Overview) -> Iterator[tuple[str, str]]:
    """A name and a sentence for each line of the screen; problems come first."""

    def ago(then: float) -> str:
        return "just now" if found.at - then < AGO_S else f"{duration(found.at - then)} ago"

    def lasts(since: float) -> str:
        return "just now" if found.at - since < AGO_S else f"for {duration(found.at - since)}"

    def since(status: Status) -> str:  # of a process that ended, its last message
        runs = found.serving or (found.learning and status.stage == STAGE)
        return lasts(status.at) if runs else ago(status.at)

    stages = [
        (f"{each.name}{'' if each.ok else ' !'}", f"{each.message} ({since(each)})")
        for each in sorted(found.stages, key=lambda each: each.ok)
    ]
    faults = sum(not each.ok for each in found.stages)
    yield from stages[:faults]
    yield "learning", _learning(found, ago)
    yield "next update", found.next_words if found.pause is None else f"none while paused; {found.next_words}"
    newest, last = found.newest, "none yet"
    if newest is not None:
        whose = "" if newest.adapter == SHARED else f" of {newest.adapter}"
        last = f"version {newest.number}{whose}, {ago(newest.committed_at)}"
        if newest.restores is not None:
            last += f": went back to version {newest.restores}"
        elif newest.origin is Origin.REPLAY:
            last += ": earlier updates, run again without what was forgotten"
        else:
            last += f", from {counted(newest.trained, 'turn')}"
        if (way := newest.metrics.get("way_to_teacher")) is not None:
            last += f"; it went {way:z.0%} of the way to the teacher"
        if past := newest.metrics.get("past_teacher"):
            last += f"; the hints of {counted(int(past), 'disliked answer')} had nothing left to teach"
        if (moved := newest.metrics.get("plain_kl")) is not None:
            last += f"; plain answers are {moved:.2g} nats a token from the original model"
    yield "last update", last
    made = newest.number if newest is not None and newest.adapter == SHARED else 0
    newer = f"; version {made} is not served yet" if made and made != found.version else ""
    runs = "" if found.serving else "; no gateway runs over this home"
    yield "serving", f"version {found.version}{newer}{runs}"
    if found.own:
        held = "; ".join(f"{name} ({pause.words})" for name, pause in found.paused_adapters.items())
        trained = "adapter has" if found.own == 1 else "adapters have"
        yield "adapters", f"{found.own} personal {trained} been trained{f'; paused: {held}' if held else ''}"
    turns = ", ".join(
        f"{found.turns[state]} {state.value}{WAITS.get(state, '')}" for state in State if state in found.turns
    )
    yield "turns", turns or "none yet"
    yield "corrections", found.helping
    yield from stages[faults:]


def _learning(found: Overview, ago: Callable[[float], str]) -> str:
    if found.pause is not None:
        why = f" ({found.pause.words})" if found.pause.words else ""
        rest = f"; {counted(found.in_update, 'turn')} of an update that had begun" if found.in_update else ""
        return f"paused {ago(found.pause.since)}{why}: `afterwit resume` continues{rest}"
    update = f"an update of {counted(found.in_update, 'turn')}"
    elsewhere = any(status.stage == STAGE and status.machine for status in found.stages)
    if found.in_update and (found.learning or elsewhere):
        return f"{update} is under way"
    if found.learning:
        return "on; no update is under way"
    if not found.enabled:
        return "off (learner.enabled = false)"
    if found.serving and any(status.stage == STAGE for status in found.stages):
        return "no learner runs here now; the line `learn` has the reason"
    cut_off = f"; {update} was interrupted, and its turns wait" if found.in_update else ""
    return f"no learner runs over this home: `afterwit serve` or `afterwit train` starts one{cut_off}"

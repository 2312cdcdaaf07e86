"""When an update starts and with which turns, and when a failed batch is tried again. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain

import orjson

from afterwit.learning.settings import LearnerSettings
from afterwit.text import counted
from afterwit.turn import SHARED
from afterwit.verdict import Review, ReviewRule, Waiting
from afterwit.version import versions_between

LONGEST_RETRY_S = 3600.0
SHARE_OF_BACKLOG = 4
"""A larger update takes one in this many of the waiting turns, so that a short queue keeps `batch`."""
Group = Sequence[Waiting]
"""Turns of one session that train in one update."""

NOW = 0
"""The version that turns `in_their_chains` are compared with."""

CHOOSE = (
    "batch",
    "min_batch",
    "max_wait_s",
    "turns_per_session_per_update",
    "batches_per_update",
    "max_staleness",
    "source_share",
    "review",
    "tool_hints",
)
"""The settings that choose the next batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextBatch:
    """The update that the learner starts now, if any, and the turns that wait."""

    turns: tuple[int, ...]
    """The turns, by `seq`, of the update that is due; empty if none is due."""
    ready: int
    """Turns that could train now, those of the update included."""
    held: int
    """Turns that wait for more of their session."""
    oldest_s: float
    """How long the oldest ready turn has waited; 0 if there is none."""
    review: int = 0
    """Turns that wait for a person's review."""
    lags: bool
    """Not all ready turns can train in time, so the newest go first."""
    adapter: str = SHARED


NOTHING = NextBatch(turns=(), ready=0, held=0, oldest_s=0.0, lags=False)
"""No turn waits."""


def in_their_chains(waiting: Sequence[Waiting], chains: Mapping[str, Sequence[int]]) -> list[Waiting]:
    """The turns with `oldest_version` counted back from their adapter's newest version, which is `NOW`.

    `chains` are the numbers of each adapter's versions, ascending; one without versions is at the base.
    """
    found = []
    for turn in waiting:
        numbers = chains.get(turn.adapter, (0,))
        behind = versions_between(turn.oldest_version, numbers[-1], numbers)
        found.append(turn._replace(oldest_version=NOW - behind))
    return found


def next_of_all(
    settings: LearnerSettings,
    waiting: Sequence[Waiting],
    paused: Collection[str],
    *,
    now: float,
    drain: bool = False,
) -> NextBatch:
    """The next batch of a learner of several adapters: of the updates that are due the one whose oldest turn
    has waited longest. If none is due, how much waits for any.

    `waiting` are `in_their_chains`. Adapters that are `paused` learn nothing.
    """
    turns: dict[str, list[Waiting]] = {}
    for turn in waiting:
        if turn.adapter not in paused:
            turns.setdefault(turn.adapter, []).append(turn)
    choices = [
        replace(next_batch(settings, own, now=now, version=NOW, drain=drain), adapter=adapter)
        for adapter, own in turns.items()
    ]
    if due := [choice for choice in choices if choice.turns]:
        return max(due, key=lambda choice: choice.oldest_s)
    if len(choices) == 1:
        return choices[0]
    return NextBatch(
        turns=(),
        ready=sum(choice.ready for choice in choices),
        held=sum(choice.held for choice in choices),
        review=sum(choice.review for choice in choices),
        oldest_s=max((choice.oldest_s for choice in choices), default=0.0),
        lags=any(choice.lags for choice in choices),
    )


def largest_batch(settings: LearnerSettings) -> int:
    """Turns of one update at most."""
    return settings.batch * settings.batches_per_update


def is_stale(turn: Waiting, settings: LearnerSettings, version: int) -> bool:
    """Whether the turn is too old to train with weights `version`."""
    return version - turn.oldest_version > settings.max_staleness


def next_batch(
    settings: LearnerSettings,
    waiting: Sequence[Waiting],
    *,
    now: float,
    version: int,
    drain: bool = False,
) -> NextBatch:
    """The update that is due with weights `version`, if any. `waiting` is in the order of arrival, without
    stale turns.

    It is due with `batch` ready turns, or with `min_batch` once the oldest has waited for `max_wait_s`. To
    `drain` is to learn from whatever is there, without waiting for more. Turns that are held back for their
    session are not ready. Those that wait for a person's review are counted, and left out of all this.

    A long queue makes the update larger. The oldest turns go first while all can train in time, else the
    newest: the others will go stale anyway. An update takes whole groups and passes over one that does not
    fit; only if that leaves fewer than `min_batch` is a group cut. What a source has beyond its share of an
    update waits, and does not make one due. Once practice has filled a source's share, `min_batch` suffice.
    """
    taught, batch = that_teach(waiting, settings.teaching), settings.batch
    patience_s, least = (0.0, 1) if drain else (settings.max_wait_s, settings.min_batch)
    ripe = _ripe(taught, settings, arrived_by=now - patience_s, version=version)
    ready = list(chain(*ripe))
    size = largest_batch(settings)
    lags = any(is_stale(turn, settings, version + at // size) for at, turn in enumerate(ready))
    oldest_s = max((now - turn.since for turn in ready), default=0.0)
    enough = least if ready and oldest_s >= patience_s else batch
    given = Counter(turn.source for turn in ready)
    room = largest_share(batch, sources=max(len(given), 1), share=settings.source_share)
    if any(turn.practised and given[turn.source] >= room for turn in ready):
        enough = least
    due = sum(min(count, room) for count in given.values()) >= enough
    turns = _taken(ripe[::-1] if lags else ripe, settings, least) if due else []
    return NextBatch(
        turns=tuple(sorted(turn.seq for turn in turns)),
        ready=len(ready),
        held=len(taught) - len(ready),
        review=len(waiting) - len(taught),
        oldest_s=oldest_s,
        lags=lags,
    )


def that_teach(waiting: Sequence[Waiting], rule: ReviewRule) -> list[Waiting]:
    """The turns that wait for no person's review."""
    return [
        turn
        for turn in waiting
        if not rule.withholds(turn.flags, accepted=turn.accepted, rewarded=turn.rewarded)
    ]


def _ripe(
    waiting: Sequence[Waiting], settings: LearnerSettings, *, arrived_by: float, version: int
) -> list[Group]:
    """The groups that wait for no more of their session: whole ones, those of a session that ended, and those
    with a turn that has waited long enough or would go stale.

    A batch passes over a group only if it has too little room left for it, and two batches in a row take more
    than one batch's turns together: that bounds the updates that lie ahead.
    """
    together = settings.turns_per_session_per_update
    ahead = math.ceil(len(waiting) / max(settings.batch - together + 1, settings.batch / 2))
    urgent = version + ahead - settings.max_staleness
    return [
        group
        for group in grouped(waiting, together)
        if len(group) == together
        or group[0].ended
        or any(turn.since <= arrived_by or turn.oldest_version <= urgent for turn in group)
    ]


def _taken(groups: Sequence[Group], settings: LearnerSettings, least: int) -> list[Waiting]:
    """The turns of an update: groups in their order while there is room for them, and room for their source;
    single turns if that leaves fewer than `least`."""
    turns = list(chain(*groups))
    batches = len(turns) // (SHARE_OF_BACKLOG * settings.batch)
    size = settings.batch * min(max(batches, 1), settings.batches_per_update)
    sources = len({turn.source for turn in turns})
    room = largest_share(size, sources=sources, share=settings.source_share)
    taken: list[Waiting] = []
    for candidates in (groups, [[turn] for turn in turns]):
        taken, given = [], Counter[str]()
        for group in candidates:
            source = group[0].source
            if len(taken) + len(group) <= size and given[source] + len(group) <= room:
                taken.extend(group)
                given[source] += len(group)
        if len(taken) >= least:
            break
    return taken


def largest_share(size: int, *, sources: int, share: float) -> int:
    """The most turns of one source in an update of `size` turns, if `sources` sources have waiting turns.

    `share` of the update, or an equal part if that is more: two sources fill it together, and one alone.
    """
    if size < 1 or sources < 1:
        raise ValueError(f"an update of {size} turns of {sources} sources")
    return max(math.ceil(size * share), math.ceil(size / sources))


def within_limit(waiting: Sequence[Waiting], *, used: Mapping[str, int], limit: int) -> list[Waiting]:
    """The waiting turns, in their order, of each source at most `limit` less what it `used`; 0: no limit."""
    given: Counter[str] = Counter(used)
    kept = []
    for turn in waiting:
        given[turn.source] += 1
        if not limit or given[turn.source] <= limit:
            kept.append(turn)
    return kept


def grouped(waiting: Sequence[Waiting], size: int) -> Sequence[Group]:
    """Each session's turns in groups of `size`, the last perhaps smaller, ordered by their first turns."""
    groups: list[list[Waiting]] = []
    growing: dict[str, list[Waiting]] = {}
    for turn in waiting:
        if len(growing.get(turn.session, ())) % size == 0:
            groups.append([])
            growing[turn.session] = groups[-1]
        growing[turn.session].append(turn)
    return groups


def retry_in(settings: LearnerSettings, attempts: int) -> float:
    """Seconds until a batch that failed `attempts` times before is tried again."""
    return min(settings.retry_s * 2.0 ** min(attempts, 30), LONGEST_RETRY_S)


def note_of(settings: LearnerSettings) -> str:
    """The settings by which the next update is chosen."""
    values = asdict(settings)
    return orjson.dumps({name: values[name] for name in CHOOSE}).decode()


def with_note(settings: LearnerSettings, note: str | None) -> LearnerSettings:
    """The settings with those that the learner noted; unchanged if it never ran."""
    noted = orjson.loads(note or "{}")
    if "review" in noted:
        noted["review"] = Review(noted["review"])
    return replace(settings, **{name: noted[name] for name in CHOOSE if name in noted})


def next_update(choice: NextBatch, settings: LearnerSettings, *, later: int = 0) -> str:
    """When the next update starts, in words. `later`: how many turns failed and cannot be claimed yet."""
    batch, least = settings.batch, settings.min_batch
    held = f"; {counted(choice.held, 'turn')} for more of the same session" if choice.held else ""
    held += f"; {counted(choice.review, 'turn')} for your review" if choice.review else ""
    held += f"; {counted(later, 'turn')} of a failed update wait for another try" if later else ""
    if not choice.ready:
        late = f", or at {least} after {duration(settings.max_wait_s)}" if least < batch else ""
        none = "no other judged turn waits" if later else "no judged turn waits"
        return f"{none}{held}: the next update starts at {batch}{late}"
    ready = (
        counted(choice.ready, "turn")
        if choice.ready > batch
        else f"{choice.ready} of {counted(batch, 'turn')}"
    )
    if choice.turns:
        return f"{ready} wait{held}: the next update is due"
    left_s = settings.max_wait_s - choice.oldest_s
    condition = f"at {least}"
    if left_s > 0 and least < batch:
        enough = "" if choice.ready >= least else f" if {least} wait then"
        condition = f"at {batch}, or in {duration(left_s)}{enough}"
    return f"{ready} wait{held}: the next update starts {condition}"


def duration(seconds: float) -> str:
    """Roughly how long, rounded up: "12 minutes"."""
    if seconds <= 60:
        return "1 minute"
    if seconds <= 7200:
        return f"{math.ceil(seconds / 60)} minutes"
    return f"{math.ceil(seconds / 3600)} hours"

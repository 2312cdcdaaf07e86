"""When an update starts and with which turns, and when a batch that failed is tried again. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain

from afterwit.core.sample import Waiting
from afterwit.learner.settings import LearnerSettings

LONGEST_RETRY_S = 3600.0

Group = Sequence[Waiting]
"""Turns of one session that train in one update."""


def in_sight(settings: LearnerSettings) -> int:
    """How many of the oldest waiting turns `next_batch` needs to see: where so many wait, none is held."""
    return settings.batch * max(settings.max_staleness, 1) * settings.segments_per_update


def next_batch(
    settings: LearnerSettings, waiting: Sequence[Waiting], *, now: float, version: int, patience_s: float
) -> tuple[int, ...]:
    """The turns, by `seq`, of the update that is due with weights `version`; none: no update is due.

    It is due with a batch of turns, or with `min_batch` once the oldest has waited for `patience_s`; turns
    that are held back do not count. It takes whole groups, the oldest first, and passes over one that would
    overfill it, which then leads the next; only where that would leave fewer than `min_batch` is one cut.
    `waiting` is in the order of arrival, the oldest `in_sight` of all at least.
    """
    ahead = _updates(settings, len(waiting))

    def held_back(group: Group) -> bool:
        """Whether it waits for more of its session: while all that waits can still train in time."""
        behind = version - min(turn.oldest_version for turn in group)
        return (
            len(group) < settings.segments_per_update
            and not group[0].ended
            and all(now - turn.since < patience_s for turn in group)
            and behind + ahead < settings.max_staleness
        )

    ripe = [group for group in grouped(waiting, settings.segments_per_update) if not held_back(group)]
    turns = list(chain(*ripe))
    late = any(now - turn.since >= patience_s for turn in turns)
    if len(turns) < (settings.min_batch if late else settings.batch):
        return ()
    whole = _that_fit(ripe, settings.batch)
    chosen = whole if len(whole) >= settings.min_batch else turns[: settings.batch]
    return tuple(turn.seq for turn in chosen)


def _updates(settings: LearnerSettings, turns: int) -> int:
    """In how many updates so many turns train at most.

    A batch that passes over a group has less room left than that needs, and two in a row take more than one
    batch together.
    """
    least = max(settings.batch - settings.segments_per_update + 1, settings.batch / 2)
    return math.ceil(turns / least)


def grouped(waiting: Sequence[Waiting], size: int) -> Sequence[Group]:
    """Each session's turns in groups of `size`, its last one perhaps smaller, by the groups' first turns."""
    groups: list[list[Waiting]] = []
    growing: dict[str, list[Waiting]] = {}
    for turn in waiting:
        if len(growing.get(turn.session, ())) % size == 0:
            groups.append([])
            growing[turn.session] = groups[-1]
        growing[turn.session].append(turn)
    return groups


def _that_fit(groups: Sequence[Group], room: int) -> list[Waiting]:
    taken: list[Waiting] = []
    for group in groups:
        if len(taken) + len(group) <= room:
            taken.extend(group)
    return taken


def retry_in(settings: LearnerSettings, attempts: int) -> float:
    """Seconds until a batch is tried again that failed `attempts` times before."""
    return min(settings.retry_s * 2.0 ** min(attempts, 30), LONGEST_RETRY_S)

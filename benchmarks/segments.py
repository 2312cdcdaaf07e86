"""What do turns of a session that wait for each other save, and how much later do they learn?

A session of 16 turns with three hints each, prompts of 224 to 824 tokens, goes through whole updates of N of
its turns (`learner.turns_per_session_per_update`), AdamW's step included, which a batch of several sessions
would share. The lateness is that of 16 such sessions at once in batches of 16, each turn sampled by the
newest weights: how many versions newer those are that learn from it. The floor is the whole session in one
update.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from transformers.utils.logging import disable_progress_bar

from afterwit.learning.batch import Item
from afterwit.learning.passes import Row, token_ratio
from afterwit.learning.schedule import next_batch
from afterwit.learning.settings import LearnerSettings
from afterwit.verdict import Waiting
from benchmarks.asked import Asked, Scale
from benchmarks.measure import Row as Figure
from benchmarks.measure import interleaved, noted
from benchmarks.packing import SMALL
from benchmarks.sessions import Session
from benchmarks.update import Bench, batch

TURNS = 16
SESSION = Session(turns=TURNS, system=200, asked=24, said=16, hint=20)
SEGMENTS = (16, 8, 4, 2, 1)
PATIENT = 4 * TURNS
"""Versions: enough that no turns go earlier because of their staleness."""


def rows(asked: Asked) -> Iterator[Figure]:
    disable_progress_bar()
    session = SESSION.times(0.1) if asked.quick else SESSION
    scale = Scale(shape=SMALL, tokens=session.tokens)
    with tempfile.TemporaryDirectory() as name:
        bench = Bench.set_up(asked, scale, Path(name))
    items = batch(session, SMALL.vocabulary)
    cut = {segments: _cut(items, segments) for segments in SEGMENTS}
    names = {segments: "floor" if segments == TURNS else f"{segments}" for segments in SEGMENTS}
    variants = {names[each]: lambda each=each: _learn(bench, cut[each]) for each in SEGMENTS}
    timed, note = interleaved(variants, runs=asked.runs, clock=asked.seconds)
    for segments in reversed(SEGMENTS):
        ratio = fmean(token_ratio(_rows_of(part)) for part in cut[segments])
        late = _lateness(segments)
        yield Figure(
            id=f"n{segments}",
            what=f"updates of {segments} turns: seconds of a session of {TURNS}",
            values=tuple(run[names[segments]] for run in timed),
            note=noted(
                f"token ratio {ratio:.2f}, {fmean(late):.1f} versions late, at most {max(late)}", note
            ),
        )


def _cut(items: list[Item], size: int) -> list[list[Item]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _rows_of(items: list[Item]) -> list[Row]:
    return [row for item in items for row in (item.student, *item.teachers)]


def _learn(bench: Bench, parts: list[list[Item]]) -> None:
    for part in parts:
        replace(bench, items=part).ours()


def _lateness(segments: int, sessions: int = 16) -> list[int]:
    """The waiting turns of sessions that take turns, and then end."""
    settings = LearnerSettings(
        turns_per_session_per_update=segments, batch=16, min_batch=1, max_staleness=PATIENT
    )
    waiting, late, version = list[Waiting](), list[int](), 0
    for seq in range(sessions * TURNS):
        ended = seq >= sessions * (TURNS - 1)
        waiting.append(Waiting(seq, str(seq), str(seq % sessions), 0.0, version, ended))
        while chosen := next_batch(settings, waiting, now=0.0, version=version).turns:
            late += [version - turn.oldest_version for turn in waiting if turn.seq in chosen]
            waiting = [turn for turn in waiting if turn.seq not in chosen]
            version += 1
    return late

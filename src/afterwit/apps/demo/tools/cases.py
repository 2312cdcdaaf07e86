"""Turns of the tools world with known truth, to measure judges on."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from afterwit.apps.demo.tools import tasks, words
from afterwit.apps.demo.tools.played import DONE, play
from afterwit.apps.demo.world import CaseKind, LabelledCase, Split, Task, text_message


def cases(split: Split, number: int, seed: int) -> list[LabelledCase]:
    """Cases as the demo's interactions give them, wordings and names of one part."""
    rng = Random(seed)
    with tempfile.TemporaryDirectory(prefix="afterwit-cases-") as folder:
        return [_case(split, rng, Path(folder)) for _ in range(number)]


def _case(split: Split, rng: Random, folder: Path) -> LabelledCase:
    task = tasks.draw(split, rng)
    played = play(task, {rule for rule in task.rules if rng.random() < 0.5}, folder)
    first = next((index for index, found in enumerate(played.broken) if found), None)
    if first is not None:
        file = next(iter(task.subject.values()))
        words_said = words.complaint(played.broken[first], file, split, rng)
        response, result = played.messages[2 * first : 2 * first + 2]
        return _made(
            "complaint", task, response, (result, text_message("user", words_said)), -1, played.broken[first]
        )
    if rng.random() < 0.4:
        index = rng.randrange(len(played.broken))
        return _made("quiet", task, played.messages[2 * index], (played.messages[2 * index + 1],), 1, ())
    done = text_message("assistant", DONE)
    if rng.random() < 0.3:
        words_said = words.failure(f"{' '.join(task.checks[0])} gives status 1", split, rng)
        return _made("failure", task, done, (text_message("user", words_said),), -1, ())
    return _made("approval", task, done, (text_message("user", words.approval(split, rng)),), 1, ())


def _made(
    kind: CaseKind,
    task: Task,
    response: Mapping[str, Any],
    following: tuple[Mapping[str, Any], ...],
    reward: int,
    rules: tuple[str, ...],
) -> LabelledCase:
    return LabelledCase(
        kind=kind, request=task.request, response=response, following=following, reward=reward, rules=rules
    )

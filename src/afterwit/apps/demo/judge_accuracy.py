"""How often a judge is right about what the owner of the tools world says: cases with known answers."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, Literal

from afterwit.apps.demo.base.corpus import DONE, play
from afterwit.apps.demo.tools import hints, tasks, words
from afterwit.apps.demo.world import Split, Task
from afterwit.core.voting import parse_evaluation, parse_hint
from afterwit.wire import judge_short

Kind = Literal["complaint", "approval", "failure", "quiet"]
Answers = Callable[[Sequence[list[dict[str, str]]]], Sequence[str]]
"""Prompts in, the judge's words out, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One answered turn, what came next, and the truth: its reward and the rules a hint must name."""

    kind: Kind
    request: str
    response: Mapping[str, Any]
    following: tuple[Mapping[str, Any], ...]
    reward: int
    rules: tuple[str, ...]


def cases(split: Split, number: int, seed: int) -> list[Case]:
    """Cases as the demo's interactions give them, wordings and names of one part."""
    rng = Random(seed)
    with tempfile.TemporaryDirectory(prefix="afterwit-cases-") as folder:
        return [_case(split, rng, Path(folder)) for _ in range(number)]


def accuracy(answers: Answers, judged: Sequence[Case]) -> dict[str, float]:
    """The share of right rewards and of right hints, by kind of case and in all.

    A hint is right when it speaks of exactly the broken rules, and where there are none when there is none.
    """
    asked = [judge_short.prompts(case.request, case.response, case.following) for case in judged]
    rewards = [parse_evaluation(said).value for said in answers([pair[0] for pair in asked])]
    found = [
        _rules(said, case) for said, case in zip(answers([pair[1] for pair in asked]), judged, strict=True)
    ]
    right = [
        (case.kind, "reward", reward == case.reward) for case, reward in zip(judged, rewards, strict=True)
    ]
    right += [
        (case.kind, "hint", rules == set(case.rules)) for case, rules in zip(judged, found, strict=True)
    ]
    names = sorted({(kind, part) for kind, part, _ in right} | {("all", "reward"), ("all", "hint")})
    return {
        f"{part} {kind}": fmean(good for k, p, good in right if p == part and kind in (k, "all"))
        for kind, part in names
    }


def _rules(said: str, case: Case) -> set[str] | None:
    vote = parse_hint(said, [message["content"] for message in case.following], quote_words=8)
    if vote.hint is None:
        return set() if vote.value == -1 else None
    spoken = vote.hint.lower()
    return {rule for rule, known in hints.HINTS.items() if any(hint.lower() in spoken for hint in known)}


def _case(split: Split, rng: Random, folder: Path) -> Case:
    task = tasks.draw(split, rng)
    played = play(task, {rule for rule in task.rules if rng.random() < 0.5}, folder)
    first = next((place for place, found in enumerate(played.broken) if found), None)
    if first is not None:
        file = next(iter(task.subject.values()))
        said = words.complaint(played.broken[first], file, split, rng)
        response, result = played.messages[2 * first : 2 * first + 2]
        return _made("complaint", task, response, (result, _person(said)), -1, played.broken[first])
    if rng.random() < 0.4:
        place = rng.randrange(len(played.broken))
        return _made("quiet", task, played.messages[2 * place], (played.messages[2 * place + 1],), 1, ())
    done = {"role": "assistant", "content": DONE}
    if rng.random() < 0.3:
        said = words.failure(f"{' '.join(task.checks[0])} gives status 1", split, rng)
        return _made("failure", task, done, (_person(said),), -1, ())
    return _made("approval", task, done, (_person(words.approval(split, rng)),), 1, ())


def _made(
    kind: Kind,
    task: Task,
    response: Mapping[str, Any],
    following: tuple[Mapping[str, Any], ...],
    reward: int,
    rules: tuple[str, ...],
) -> Case:
    return Case(
        kind=kind, request=task.request, response=response, following=following, reward=reward, rules=rules
    )


def _person(said: str) -> Mapping[str, Any]:
    return {"role": "user", "content": said}

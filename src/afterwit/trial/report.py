"""The report of a trial: one sentence, and report.html with real answers before and after."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from afterwit.demo import pages
from afterwit.demo.pages import chart
from afterwit.practice.table import LessonRow
from afterwit.progress import difference_interval
from afterwit.text import counted
from afterwit.trial.people import Person
from afterwit.trial.play import Played, Point, satisfied_after

MOST_KL = 0.1
"""Nats a token from the original model, above which other answers have changed much."""
SHOWN = 6
"""Questions whose answers are shown."""
PRACTISED = ("words", "how_often", "how_far", "request", "before", "after")
"""The columns of a practised lesson that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """The cost of learning, read from the versions and the process."""

    versions: int
    seconds: float
    """Of all updates."""
    tokens: int
    """That were trained on."""
    memory_mib: float | None
    """The most that the learner held; None: unknown."""
    troubles: Sequence[str] = ()
    """The faults that the stages report."""
    way: float | None = None
    """The mean share of the way to its teacher that an update went."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The answer of a trial."""

    learned: bool
    sentence: str


def conclusion(played: Played, person: Person | None, learning: Learning) -> Conclusion:
    """Whether the model learned, with the reason. It did if the share of held-out questions rose by more than
    chance (95 %, Newcombe's interval of the difference)."""
    if person is None:
        tried = "; ".join(
            f"{each.wants}: {each.told} of {each.of}, without it {each.alone}" for each in played.lessons
        )
        return Conclusion(
            False,
            "It cannot be taught here: the instruction in its prompt makes no difference that could not be"
            f" chance ({tried}), so a hint teaches nothing. Choose a model that follows instructions.",
        )
    first, last = played.points[0], played.points[-1]
    share = f"{last.kept / last.of:.2f} of held-out answers in place of {first.kept / first.of:.2f}"
    told = f"with the instruction in its prompt {(played.ceiling or 0) / first.of:.2f}"
    after = f"after {counted(last.conversations, 'conversation')}"
    if difference_interval((first.kept, first.of), (last.kept, last.of)).low > 0:
        sentence = f"It learned: {after} it gives {person.wants} in {share} ({told})."
        return Conclusion(True, " ".join([sentence, *_harm(first, last)]))
    return Conclusion(
        False, f"It did not learn {person.wants} {after}: {share} ({told}), because {_why(last, learning)}."
    )


def _harm(first: Point, last: Point) -> list[str]:
    found = []
    if last.bad:
        found.append(
            f"{last.bad} of {last.of} held-out answers were empty or went round in circles (before"
            f" learning: {first.bad})."
        )
    if last.worse:
        found.append(f"{counted(last.worse, 'answer')} to other requests became worse.")
    if last.kl is not None and last.kl > MOST_KL:
        found.append(f"Other answers moved far from the original model ({last.kl:.2f} nats a token).")
    return found


def _why(last: Point, learning: Learning) -> str:
    if not last.conversations:
        return "there was no time for a conversation: give it more --minutes"
    if not learning.versions:
        return learning.troubles[0] if learning.troubles else "no update was finished: give it more --minutes"
    updates = counted(learning.versions, "update")
    if learning.troubles:
        return f"of {updates}: {learning.troubles[0]}"
    if learning.way is None:
        return f"{updates} changed too little: give it more --minutes, or a larger learner.lr"
    return (
        f"{updates} went {learning.way:.0%} of the way to the teacher on average: give it more --minutes, or"
        " a larger learner.lr"
    )


def write(
    played: Played,
    person: Person | None,
    learning: Learning,
    lessons: Sequence[LessonRow],
    settings: Mapping[str, Any],
    out: Path,
) -> Conclusion:
    """Write the files into `out`. The pictures need at least two measurements. `lessons` were practised."""
    found, points = conclusion(played, person, learning), played.points
    facts: dict[str, Any] = {
        **played.identity,
        "learned": found.learned,
        "conclusion": found.sentence,
        "lessons": [asdict(each) | {"teachable": each.teachable} for each in played.lessons],
        "preference": played.preference,
        "wants": None if person is None else person.wants,
        "ceiling": played.ceiling,
        "points": [asdict(point) for point in points],
        "satisfied_after": satisfied_after(played.talks),
        "talks": [asdict(talk) for talk in played.talks],
        "learning": asdict(learning),
        "practised": [{name: getattr(each, name) for name in PRACTISED} for each in lessons],
        "seconds": played.seconds,
        "examples": _examples(person, points),
    }
    picture = _picture(facts) if len(points) > 1 else ""
    pages.write("trial", facts, picture, out, settings=json.dumps(settings, indent=2))
    return found


def _picture(facts: Mapping[str, Any]) -> str:
    points = facts["points"]
    kept = [(each["conversations"], each["kept"] / each["of"]) for each in points]
    told = [(each["conversations"], facts["ceiling"] / each["of"]) for each in (points[0], points[-1])]
    label = f"share of held-out answers with {facts['wants']}, over {kept[-1][0]} conversations"
    curves = [("by itself", "preference", kept), ("with the instruction in its prompt", "success", told)]
    return chart(curves, width=560, height=230, label=label)


def _examples(person: Person | None, points: Sequence[Point]) -> list[dict[str, Any]]:
    """Held-out questions with the first and the last answer: an evenly spread choice, not the best ones."""
    if person is None or len(points) < 2:
        return []
    asked = person.measured
    chosen = range(0, len(asked), max(1, len(asked) // SHOWN))[:SHOWN]
    return [
        {"question": asked[at], "before": points[0].answers[at], "after": points[-1].answers[at]}
        for at in chosen
    ]

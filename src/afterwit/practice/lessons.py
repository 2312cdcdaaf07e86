"""A lesson: a hint in words, the turns that carry it, the answers that practised it, and what follows. Pure.

The gap of an answer is `log pi(y) - log pi_T(y)` in nats, for the answer `y` that the policy `pi` sampled and
the teacher `pi_T`, which reads the lesson. Its mean over fresh answers estimates the KL divergence of the
policy from the teacher on a whole answer: 0 is a policy that answers as if it had read the lesson.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest
from statistics import fmean
from typing import Any, NamedTuple

from afterwit.lifecycle import Reason, State
from afterwit.promotion.episodes import Event, EventKind
from afterwit.ranges import at_least, below, within
from afterwit.turn import SHARED, Turn
from afterwit.verdict import Flag, Vote
from afterwit.vetting.own_words import MOST_HINT, holds_value, is_demonstration


@dataclass(frozen=True, slots=True, kw_only=True)
class PracticeSettings:
    """How much a correction is practised: while no turn waits, the model answers its prompt and similar
    ones again, and the model that reads the hint teaches on the new answers."""

    enabled: bool = True
    """false: a correction teaches once, by its own turn."""
    updates: int = 16
    """Most updates for one lesson; as many again the next day, or when the correction is repeated."""
    a_day: int = 192
    """Updates of all lessons within 24 hours."""
    max_tokens: int = 1024
    """Most tokens of a practised answer."""
    approved: float = 0.25
    """Share of an update's prompts whose answers people approved. On these the teacher reads only earlier
    lessons."""
    synthetic: float = 0.5
    """Share of an update's other prompts whose requests the model writes itself. It is larger if too few
    are recorded, because one prompt alone is learned by heart. 0, or with groups: none."""
    group: int = 1
    """Answers to each prompt of an update. Above 1, a judge that votes gives answers that follow the
    lesson the reward 1 and the others -1, if there are both."""
    at_once: bool = False
    """Whether the prompts of new conversations show the lessons of their key that are not learned yet,
    newest first, at the beginning of the first user message."""
    at_once_lessons: int = 5
    """Lessons in one prompt, at most."""
    at_once_tokens: int = 256
    """Tokens of these lessons, at most."""

    def __post_init__(self) -> None:
        at_least(self, 1, "updates", "a_day", "max_tokens", "group", "at_once_lessons", "at_once_tokens")
        within(self, 0, 1, "approved", "synthetic")
        below(self, 1, "approved")


DAY_S = 86_400.0
STAND = (Reason.STALE, Reason.NOT_SAMPLED_HERE)
"""Ends of corrected turns that do not train, and whose lessons stand."""
WINDOW = 8
"""The newest answers whose mean gap decides: two updates of `learner.batch`."""
CLOSE = 1.0
"""Nats an answer: a teacher this near would have given the same answer. Such an answer is not trained on: an
update has nothing to gain from it, and much to lose."""
SHARE = 0.15
"""Of the first gap: the rest is not worth an update."""
LEAST_STEP = 0.25
"""Of a whole one. A whole step near the end overshoots: SmolLM2 fell from 0.62 of a preference to 0.41
in four more updates, and with smaller ones it stayed at 0.66."""
FALLS = 0.95
"""A mean gap over this share of the one before it no longer falls."""
TREND = 32
"""Answers in each of the two means that tell whether a gap still falls. In the tools world an answer is near
0 nats or near 20, so a mean of 16 has an error of up to 2.5, and of 32 of up to 1.8."""
FEWEST_TO_SETTLE = 2 * TREND
"""Answers before a gap may count as one that no longer falls."""
MOST_SAMPLED = 4
"""Answers sampled for each one that an update may learn from: good ones teach nothing."""
ALIKE = 0.8
"""Share of the longer lesson's words that the shorter one must have."""
OTHERS = 3
"""Other prompts needed to find that a word belongs to one conversation alone."""
MANY_OTHERS = 12
"""As many are needed where the model can write more: a word of every third request, such as "file", is in
none of 3 others in 3 of 10 cases, and in none of 12 in 1 of 100."""
MOST_COMPARED = 512
"""Characters of a lesson or a request that are compared."""

_ENDS = (".", "!", "?", "…", "。", "！", "？")
"""Of a sentence."""
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_FILLER = re.compile(
    r"(?:an?|and|answers?|are|as|at|be|by|can|do|for|from|i|in|is|its?|just|m[ey]|o[fnr]|please|reply|responses?"
    r"|should|so|that|the|their|them|then|there|these|they|this|to|was|were|will|with|would|your?)\Z"
)
_OPPOSITE = re.compile(
    r"(?:one|two|three|four|five|six|seven|eight|nine|ten|not?|never|without|don't|doesn't|avoid|stop|more|less"
    r"|fewer|shorter|longer|nicht|nie|keine?[nmrs]?|ohne"
    r"|weniger|kürzer\w*|länger\w*|ne|n'\w+|pas|jamais|sans|moins|nunca|jamás|sin|menos|non|mai|senza|meno)\Z"
)
"""Words that one of two opposite hints has, and numbers in words."""


class Progress(StrEnum):
    """The progress of a lesson."""

    PRACTISING = "practising"
    LEARNED = "learned"
    """The answers hardly differ from those of a model that reads the lesson."""
    SETTLED = "settled"
    """The gap no longer falls: more practice would only learn the prompts by heart."""
    DROPPED = "dropped"
    """A person dropped it."""
    REPLACED = "replaced"
    """A later lesson of its source contradicts it."""
    WAITING = "waiting"
    """For a person, because it contradicts what others approved; or none of its turns may teach: a person
    reviews them, or they were taken back."""


class Spoils(StrEnum):
    """The owners of the approved turns that a lesson contradicts."""

    OWN = "own"
    """Its own source's: it is practised on its own prompts alone."""
    OTHERS = "others"
    """It waits until a person accepts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """A turn that a person, or what followed, corrected in these words."""

    turn: str
    session: str
    scope: str
    words: str
    given: float
    """When the corrected answer was asked for; `at`, when it was judged, orders what happens to lessons."""
    at: float
    state: State
    reason: Reason | None
    flags: tuple[Flag, ...] = ()
    accepted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PractisedAnswer:
    """An answer that was sampled for practice."""

    turn: str
    prompt: str
    """The recorded turn whose prompt it answers; its own id if the model wrote the request."""
    at: float
    state: State
    reason: Reason | None
    gap: float | None
    """In nats, for the whole answer; None: not measured yet."""
    version: int | None
    """The version that learned from it."""
    oldest_version: int = 0
    """The oldest version that sampled it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """Similar hints of one source, for one adapter."""

    number: int
    source: str
    words: str
    """The first wording, or a person's edit."""
    edited: bool = False
    general: bool | None = None
    """Whether a person accepted it for other prompts; None: its words decide."""
    dropped: float | None = None
    """When a person dropped it."""
    scope: str | None = None
    """The client to whose prompts a person restricted it, by its key and name; None: its source's clients."""
    spoils: Spoils | None = None
    """None: no one's, as far as it was tested."""
    adapter: str = SHARED
    corrections: tuple[Correction, ...]
    """Oldest first, at least one."""
    answers: tuple[PractisedAnswer, ...] = ()
    """Oldest first."""
    along: tuple[PractisedAnswer, ...] = ()
    """Answers that the base taught without this lesson: to approved prompts and others that it is not about,
    and those that recited a hint. Oldest first."""

    @property
    def newest(self) -> float:
        """When it was last given."""
        return self.corrections[-1].at

    def since(self, at: float) -> list[PractisedAnswer]:
        """The answers since then."""
        return [answer for answer in self.answers if answer.at > at]

    def taught_since(self, at: float) -> list[PractisedAnswer]:
        """The answers since then that had something to teach."""
        return [answer for answer in self.since(at) if answer.reason is not Reason.ALREADY_GOOD]

    def sampled_since(self, at: float) -> list[PractisedAnswer]:
        """All that was sampled since then for this lesson: also what went along, or recited a hint."""
        return [*self.since(at), *(answer for answer in self.along if answer.at > at)]

    def practised_on(self, scope: str) -> bool:
        """Whether a person lets it be practised on prompts of this client."""
        return self.scope in (None, scope)

    def words_of(self, correction: Correction) -> str:
        """The words that a teacher reads: the person's own edit, or those of this turn."""
        return self.words if self.edited else correction.words


class Wording(NamedTuple):
    """A lesson in the words of one of its corrections."""

    lesson: Lesson
    correction: Correction

    @property
    def words(self) -> str:
        return self.lesson.words_of(self.correction)


def hint_of(earlier: Iterable[Wording], words: str) -> str:
    """The teacher's hint: the earlier lessons, each as a sentence, then these words, if there are any.

    A teacher that read the words alone would answer as the base does in everything else, and so teach the
    opposite of the earlier lessons.
    """
    read = [" ".join(each.words.split()) for each in earlier]
    if not read:
        return words
    return " ".join(each if each.endswith(_ENDS) else f"{each}." for each in [*read, words] if each)


class Fresh(NamedTuple):
    """An answer that was sampled for practice, before it is stored."""

    turn: Turn
    prompt: str
    """The turn whose prompt it answers; its own id if the model wrote the request."""
    reason: Reason | None = None
    """Why it cannot train, or has nothing to teach."""
    gap: float | None = None
    along: bool = False
    """Whether the base teaches it without this lesson."""
    reward: int = 0
    """1 or -1 if it followed the lesson, or did not, where others to its prompt did otherwise; else 0."""
    earlier: tuple[Wording, ...] = ()
    """The other lessons that its teacher reads."""


class Standing(NamedTuple):
    """The progress of a lesson, from the gaps of its answers."""

    progress: Progress
    first: float | None
    """The mean gap of its first answers; None: none was measured."""
    gap: float | None
    """The mean gap of the newest answers since it was last given."""
    version: int | None
    """The version that learned it, or that learned last."""


def standing(lesson: Lesson) -> Standing:
    """A lesson's progress. Practice begins again whenever the correction is repeated."""
    known = _known(lesson)
    gaps = [gap for _, gap in known]
    first = fmean(gaps[:WINDOW]) if gaps else None
    progress, gap = progress_of([gap for each, gap in known if each.at > lesson.newest], first=first)
    version = max((each.version for each, _ in known if each.version is not None), default=None)
    if lesson.dropped is not None:
        progress = Progress.DROPPED
    elif lesson.spoils is Spoils.OTHERS and lesson.general is None:
        progress = Progress.WAITING
    return Standing(progress, first, gap, version)


def learned_at(lesson: Lesson) -> float | None:
    """When a lesson was learned for the first time, or its gap first no longer fell; None: not yet."""
    known, corrected, place = _known(lesson), [each.at for each in lesson.corrections], 0
    gaps, first = list[float](), list[float]()
    for (answer, gap), following in zip_longest(known, known[1:]):
        while place < len(corrected) and corrected[place] < answer.at:
            place, gaps = place + 1, []
        gaps.append(gap)
        first = [*first, gap][:WINDOW]
        whole = following is None or following[0].at > answer.at  # those of one update come together
        if whole and progress_of(gaps, first=fmean(first))[0] is not Progress.PRACTISING:
            return answer.at
    return None


def _known(lesson: Lesson) -> list[tuple[PractisedAnswer, float]]:
    """The answers that were learned from, or were good already, with their gaps."""
    return [
        (each, each.gap)
        for each in lesson.answers
        if each.gap is not None and (each.state is State.TRAINED or each.reason is Reason.ALREADY_GOOD)
    ]


def progress_of(gaps: Sequence[float], *, first: float | None) -> tuple[Progress, float | None]:
    """Whether answers with these gaps, oldest first, have learned their lesson; and their newest mean gap.

    `first` is the gap before the lesson was practised at all.
    """
    gap = fmean(gaps[-WINDOW:]) if gaps else None
    if gap is None or len(gaps) < WINDOW:
        return Progress.PRACTISING, gap
    if gap <= CLOSE or (first is not None and gap <= SHARE * first):
        return Progress.LEARNED, gap
    if len(gaps) >= FEWEST_TO_SETTLE:
        before, newest = fmean(gaps[-2 * TREND : -TREND]), fmean(gaps[-TREND:])
        if newest >= FALLS * before:
            return Progress.SETTLED, gap
    return Progress.PRACTISING, gap


def step_of(lessons: Iterable[Lesson]) -> float:
    """The share of a whole step for an update with nothing but answers that practise these lessons: as much
    as the one with most to teach has left of its first gap."""
    left = [each.gap / each.first for each in map(standing, lessons) if each.gap is not None and each.first]
    return min(1.0, max(LEAST_STEP, *left)) if left else 1.0


def alike(one: str, other: str) -> bool:
    """Whether two hints ask for the same: equal words, or most of the longer one's words in both.

    Numbers and negations must agree: "at most 2 sentences" is not "at most 9", nor "use lists" "no lists".
    An example of a good answer is like itself alone.
    """
    if is_demonstration(one) or is_demonstration(other):
        return one == other
    words, others = _content(one), _content(other)
    if words == others:
        return True
    if _strict(words) != _strict(others):
        return False
    return len(words & others) >= ALIKE * max(len(words), len(others))


class Given(NamedTuple):
    """A lesson as it was last given."""

    number: int
    adapter: str
    source: str
    scope: str | None
    """The client to which a person restricted it."""
    words: str
    dropped: bool


def replaced(given: Iterable[Given]) -> dict[int, int]:
    """The lessons that a later one of the same source and scope replaces, each with the later one's number;
    the last given comes first in `given`.

    Both say the same, but for numbers, negations and words such as `longer`: "at most 60 words" replaces "at
    most 25 words". A teacher that read both could follow only one.
    """
    found, latest = dict[int, int](), dict[Any, tuple[int, frozenset[str]]]()
    for each in given:
        strict = _strict(content := _content(each.words))
        if each.dropped or is_demonstration(each.words) or content == strict:
            continue
        rest = frozenset(word.removesuffix("s") for word in content - strict)  # one line, two lines
        asked = each.adapter, each.source, each.scope, rest
        later, other = latest.setdefault(asked, (each.number, strict))
        if other != strict:
            found[each.number] = later
    return found


def best_supported(hints: Sequence[str], votes: Iterable[Vote]) -> str:
    """Of a turn's hints, which may contradict each other, the one to practise.

    It is the hint for which most votes ask, similar ones counted together; of equals the first.
    """
    asked = [vote.hint for vote in votes if vote.hint is not None]
    return max(hints, key=lambda hint: sum(alike(hint, each) for each in asked))


def names_a_case(
    words: str, request: str, requests: Sequence[str], *, tools: str = "", fewest: int = OTHERS
) -> bool:
    """Whether a hint belongs to its own conversation and must not be spread.

    It shows an answer, or names a value (a name, a number, an address), or a word of its own `request` that
    is in none of the other `requests`, of which there are at least `fewest`, and in no name of the `tools`.
    """
    if is_demonstration(words) or holds_value(words[:MOST_HINT]):
        return True
    if len(requests) < fewest:
        return False
    own = _content(words) & _content(request)
    return bool(own.difference(*map(_content, (tools, *requests))))


def rests(lesson: Lesson, *, now: float, most: int) -> str | None:
    """Why a lesson is not practised now; None: it may be. `most`: answers in a row that teach it."""
    found = standing(lesson).progress
    if found is not Progress.PRACTISING:
        return found.value
    began = max(lesson.newest, now - DAY_S)
    sampled = lesson.sampled_since(began)
    if any(answer.reason is Reason.HELD_BACK for answer in sampled):
        return "an update with it was held back"
    if len(lesson.taught_since(began)) >= most or len(sampled) >= MOST_SAMPLED * most:
        return "practised enough for now"
    return None


def rests_all(events: Sequence[Event], *, now: float) -> str | None:
    """Why an adapter practises nothing now; None: it may. `events`: its own, oldest first.

    An alarm, or two updates held back, within a day and without a confirmed version since.
    """
    recent = list[Event]()
    for event in events:
        if event.kind is EventKind.CONFIRM:
            recent = []
        elif event.at > now - DAY_S:
            recent.append(event)
    if len(recent) > 1 or any(event.kind is EventKind.ALARM for event in recent):
        return recent[-1].words
    return None


def in_turn(lessons: Iterable[Lesson]) -> list[Lesson]:
    """The lessons by need: those practised least since they were last given, then the newest."""
    return sorted(lessons, key=lambda each: (len(each.sampled_since(each.newest)), -each.newest, each.number))


def spread(prompts: Sequence[str], practised: Iterable[str], count: int) -> list[str]:
    """`count` of these prompts, which come in order of preference, those least practised first; with fewer
    prompts than that some come again."""
    often = Counter(dict.fromkeys(prompts, 0))
    often.update(prompt for prompt in practised if prompt in often)
    chosen = []
    for _ in range(count if prompts else 0):
        chosen.append(min(prompts, key=lambda prompt: often[prompt]))
        often[chosen[-1]] += 1
    return chosen


def _content(words: str) -> frozenset[str]:
    found = _WORD.findall(words[:MOST_COMPARED].casefold().replace("\u2019", "'"))
    return frozenset(word for word in found if not _FILLER.match(word))


def _strict(words: Collection[str]) -> frozenset[str]:
    """The words that similar hints must share."""
    return frozenset(word for word in words if _OPPOSITE.match(word) or any(map(str.isdigit, word)))

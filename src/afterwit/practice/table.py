"""The lessons as people read them: a row each, for command, page and programs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from afterwit.errors import SettingError, TurnNotFound
from afterwit.lifecycle import Reason, State
from afterwit.practice.lessons import Lesson, Progress, standing
from afterwit.practice.stage import may_teach
from afterwit.store import Store
from afterwit.teaching.redaction import Redaction
from afterwit.teaching.review import Rule
from afterwit.turn import Message, one_line

MOST_WORDS = 1000
"""Characters of a lesson that a person writes."""
EXAMPLE = 300
"""Characters of an example's request and of its answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonRow:
    """One lesson. Times are seconds since the epoch, gaps nats an answer."""

    number: int
    words: str
    source: str
    """The key whose person said it."""
    adapter: str
    progress: Progress
    said: int
    """How often it was said."""
    said_since_learned: int
    """How often it was said after it had been learned."""
    first: float
    last: float
    """When it was said first and last."""
    answers: int
    """Answers that practised it."""
    since: int
    """Of them, those since it was said last."""
    first_gap: float | None
    gap: float | None
    """Before practice, and over the newest answers since it was said last; None: not measured."""
    version: int | None
    """The version that learned it, or practised it last."""
    general: bool | None
    """Whether a person accepted it for other prompts; None: its words decide."""
    edited: bool
    turns: tuple[str, ...]
    """The turns that were corrected in these words."""
    sessions: tuple[str, ...]
    """Their sessions."""
    request: str | None
    """The person's words before the first corrected answer; None: its content was removed."""
    before: str | None
    """The corrected answer."""
    after: str | None
    """The newest practised answer to that prompt; None: there is none yet."""


def lessons(store: Store, rule: Rule | None = None) -> list[LessonRow]:
    """Every lesson, the one that was said last first. `rule` decides what may teach; None: the defaults."""
    found = sorted(store.lessons(), key=lambda each: -each.newest)
    return [_row(store, each, rule or Rule()) for each in found]


def _row(store: Store, lesson: Lesson, rule: Rule) -> LessonRow:
    progress, first_gap, gap, version = standing(lesson)
    if progress is Progress.PRACTISING and not any(may_teach(said, rule) for said in lesson.said):
        progress = Progress.WAITING
    first = lesson.said[0]
    practised = [answer.turn for answer in lesson.answers if answer.prompt == first.turn]
    messages = store.messages_of([first.turn, *practised[-1:]])
    return LessonRow(
        number=lesson.number,
        words=lesson.words,
        source=lesson.source,
        adapter=lesson.adapter,
        progress=progress,
        said=len(lesson.said),
        said_since_learned=said_since_learned(lesson),
        first=first.at,
        last=lesson.newest,
        answers=len(lesson.answers),
        since=len(lesson.since(lesson.newest)),
        first_gap=first_gap,
        gap=gap,
        version=version,
        general=lesson.general,
        edited=lesson.edited,
        turns=tuple(said.turn for said in lesson.said),
        sessions=tuple(dict.fromkeys(said.session for said in lesson.said)),
        request=_request(store, first.turn),
        before=_shown(messages.get(first.turn)),
        after=_shown(messages.get(practised[-1])) if practised else None,
    )


def said_since_learned(lesson: Lesson) -> int:
    """How often a lesson was said after the first time that it was learned or no longer got nearer."""
    for at, said in enumerate(lesson.said):
        known = tuple(answer for answer in lesson.answers if answer.at < said.at)
        if at and standing(replace(lesson, said=lesson.said[:at], answers=known, dropped=None)).progress in (
            Progress.LEARNED,
            Progress.SETTLED,
        ):
            return len(lesson.said) - at
    return 0


def _request(store: Store, turn: str) -> str | None:
    try:
        messages = store.turn(turn).turn.conversation.messages
    except TurnNotFound:
        return None
    return next((_shown(each) for each in reversed(messages) if each.role == "user"), None)


def _shown(message: Message | None) -> str | None:
    return None if message is None else one_line(message, EXAMPLE)


def edit(store: Store, number: int, words: str, redaction: Redaction, *, now: float) -> None:
    """Have a lesson teach in these words from now on. What waits with the old ones ends. Raises SettingError
    for words that cannot teach."""
    said = " ".join(words.split())
    if not said or len(said) > MOST_WORDS:
        raise SettingError(f"a lesson has 1 to {MOST_WORDS} characters, not {len(said)}")
    if redaction.found([said]):
        raise SettingError("these words hold a secret, which would be learned: leave it out")
    _change(store, number, now=now, words=said)


def drop(store: Store, number: int, *, now: float) -> None:
    """Never practise a lesson again, however often it is said; what waits ends. Its corrections still teach
    once."""
    _change(store, number, now=now, dropped=now)


def _change(store: Store, number: int, *, now: float, **columns: float | str) -> None:
    """Answers that wait for the learner end; one in an update trains if that update becomes a version."""
    with store.transaction():
        store.change_lesson(number, **columns)
        waiting = [each.turn for each in store.lesson(number).answers if each.state is State.JUDGED]
        store.skip(waiting, Reason.REVIEW_REFUSED, now=now)


def accept(store: Store, number: int) -> None:
    """Practise a lesson on other prompts too, and one that was dropped again."""
    store.change_lesson(number, general=1, dropped=None)


def order_unlearning(store: Store, number: int, *, now: float) -> str | None:
    """Drop a lesson and order that what practised it is forgotten; the order's name, for the learner that
    carries it out. None: nothing practised it."""
    name = f"lesson:{number}"
    with store.transaction():
        drop(store, number, now=now)
        if not store.turn_ids(name):
            return None
        store.order_forgetting(name, replay=True, now=now)
    return name

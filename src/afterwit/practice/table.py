"""The lessons as people read them, in the same words on command and page; and orders about one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from afterwit.errors import SettingError
from afterwit.judging.voting import speaks_of_hints
from afterwit.lifecycle import Reason, State
from afterwit.practice.lessons import (
    CLOSE,
    WINDOW,
    Correction,
    Lesson,
    Progress,
    Spoils,
    learned_at,
    replaced,
    standing,
)
from afterwit.practice.rounds import may_teach
from afterwit.progress import PersonRequest
from afterwit.promotion.watch import requests_asked
from afterwit.store import Store
from afterwit.text import counted, is_seen
from afterwit.turn import Message, one_line
from afterwit.verdict import ReviewRule
from afterwit.vetting.redaction import Redaction

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
    """The key of the person who gave it."""
    adapter: str
    progress: Progress
    corrections: tuple[Correction, ...]
    """The turns that were corrected in these words, oldest first."""
    learned: float | None
    """When it was learned first, or no longer got nearer; None: not yet."""
    said: int
    """How often it was given."""
    said_since_learned: int
    """Of that, after it had been learned."""
    requests: int
    """Its source's counted requests, of the kinds of task in which it was given."""
    requests_since_learned: int
    answers: int
    """Answers that practised it."""
    since: int
    """Those since it was last given."""
    first_gap: float | None
    gap: float | None
    """Before practice, and over the newest answers since it was last given; None: not measured."""
    version: int | None
    """The version that learned it, or practised it last."""
    general: bool | None
    """Whether a person accepted it for other prompts; None: its words decide."""
    scope: str | None
    """The client to whose prompts a person restricted it."""
    spoils: Spoils | None
    """The owner of the approved turns that it contradicts; None: it contradicts none."""
    edited: bool
    replaced_by: int | None
    """The later lesson that contradicts it, once that may teach."""
    for_review: bool
    """Whether it waits for a person's review of a correction."""
    unlearning: str | None
    """Whether what practised it is being unlearned: empty for yes, else why it failed; None: no one asked."""
    request: str | None
    """The person's words before the example's answers; None: their content was removed."""
    before: str | None
    """The answer that was given then: a corrected one, if its prompt was practised."""
    after: str | None
    """One of the newest practised answers to that prompt, if it is another; None: there is none."""
    after_version: int | None
    """The version that gave it, before it was learned from."""

    @property
    def sessions(self) -> tuple[str, ...]:
        """The conversations in which it was given, oldest first."""
        return tuple(dict.fromkeys(each.session for each in self.corrections))

    @property
    def clients(self) -> tuple[str, ...]:
        """The clients to which it was given, by key and name."""
        return tuple(dict.fromkeys(each.scope for each in self.corrections))

    @property
    def how_wide(self) -> str:
        """The prompts on which it is practised, where that is not left to its words; else empty."""
        if self.scope is not None:
            return f"practised for {self.scope} alone"
        if self.general:
            return "accepted for other prompts"
        return "it contradicts approved answers, so it keeps to its own prompts" * (self.spoils is Spoils.OWN)

    @property
    def how_far(self) -> str:
        """How surely it is learned, and by which version."""
        answers = f"{counted(self.answers, 'answer')} so far" if self.answers else "no answer so far"
        near, since = self._near, "" if self.version is None else f" since version {self.version}"
        match self.progress:
            case Progress.PRACTISING:
                again = " again" if self.learned is not None else ""
                return f"practising{again}: {answers}" + (f", {near}" if near else "")
            case Progress.LEARNED:
                return f"learned{since}: {near}"
            case Progress.SETTLED:
                return f"settled{since}: {near}, and more practice brings it no nearer"
            case Progress.WAITING if self.spoils is Spoils.OTHERS:
                return "waiting: it contradicts what others approved; accept or drop it"
            case Progress.WAITING:
                return f"waiting: {self._waits_for}"
            case Progress.DROPPED:
                return f"dropped: {self._what_stays}"
            case Progress.REPLACED:
                return f"replaced: lesson {self.replaced_by}, given later, says otherwise"

    @property
    def _near(self) -> str:
        """How near its answers are to those of a model that reads it; empty if that was not measured."""
        if self.gap is None or self.first_gap is None:
            return ""
        if self.gap <= CLOSE:
            return "it answers as a model that reads it"
        if self.first_gap <= CLOSE:
            return "further from a model that reads it than at first"
        return f"{max(0.0, 1 - self.gap / self.first_gap):.0%} of the way to a model that reads it"

    @property
    def _waits_for(self) -> str:
        if self.for_review:
            return "its corrections wait for your review"
        reason = self.corrections[-1].reason
        why = "" if reason is None else f" ({reason.words})"
        return f"its corrections do not teach any more{why}; give it again"

    @property
    def _what_stays(self) -> str:
        if self.unlearning is not None:
            return f"it is not unlearned: {self.unlearning}" if self.unlearning else "it is being unlearned"
        if self.answers:
            return f"it is not practised any more; {counted(self.answers, 'answer')} practised it before"
        return "no answer that practised it is in the weights"

    @property
    def how_often(self) -> str:
        """How often it was given, before it was learned and since."""
        said, asked = self.said - self.said_since_learned, self.requests - self.requests_since_learned
        before = f"given {_times(said)} in {counted(max(said, asked), 'request')}"
        if self.learned is None:
            return before
        again = self.said_since_learned
        since = max(again, self.requests_since_learned)
        if not since:
            return f"{before} before it was learned; no such request since"
        return f"{before} before it was learned, {_times(again)} in {counted(since, 'request')} since"


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def none_yet(store: Store) -> str:
    """Why there is no lesson, for a home without any."""
    if unjudged := store.counts().states.get(State.ANSWERED, 0):
        return f"No lesson yet: the judge has not read {counted(unjudged, 'turn')} so far."
    return "No lesson yet: correct an answer in words, by your next message or on the page."


def lessons(
    store: Store,
    rule: ReviewRule | None = None,
    asked: Sequence[PersonRequest] | None = None,
    *,
    of: Sequence[Lesson] | None = None,
) -> list[LessonRow]:
    """The rows of these lessons; without `of`, of every lesson, the last given first.

    `rule` decides what may teach; None: the defaults. `asked` are the requests that are counted.
    """
    found = sorted(store.lessons(), key=lambda each: -each.newest) if of is None else of
    asked = requests_asked(store) if asked is None else asked
    unlearning = {order.session: order.error or "" for order in store.forget_orders()}
    rule, later = rule or ReviewRule(), replaced(store.lessons_given())
    return [
        _row(
            store,
            each,
            rule,
            asked,
            unlearning=unlearning.get(practice_of(each.number)),
            later=store.lesson(later[each.number]) if each.number in later else None,
        )
        for each in found
    ]


def practice_of(number: int) -> str:
    """The name under which what practised a lesson is forgotten."""
    return f"lesson:{number}"


def _row(
    store: Store,
    lesson: Lesson,
    rule: ReviewRule,
    asked: Sequence[PersonRequest],
    *,
    unlearning: str | None,
    later: Lesson | None,
) -> LessonRow:
    progress, first_gap, gap, version = standing(lesson)
    if progress is Progress.PRACTISING and not _teaches(lesson, rule):
        progress = Progress.WAITING
    if later is not None and progress is not Progress.DROPPED and _teaches(later, rule):
        progress = Progress.REPLACED
    learned = learned_at(lesson)
    own = _of_its_kind(lesson, asked)
    request, before, after, after_version = _example(store, lesson)
    return LessonRow(
        number=lesson.number,
        words=lesson.words,
        source=lesson.source,
        adapter=lesson.adapter,
        progress=progress,
        corrections=lesson.corrections,
        learned=learned,
        said=len(lesson.corrections),
        said_since_learned=sum(learned is not None and each.at > learned for each in lesson.corrections),
        requests=len(own),
        requests_since_learned=sum(learned is not None and each.at > learned for each in own),
        answers=len(lesson.answers),
        since=len(lesson.since(lesson.newest)),
        first_gap=first_gap,
        gap=gap,
        version=version,
        general=lesson.general,
        scope=lesson.scope,
        spoils=lesson.spoils,
        edited=lesson.edited,
        replaced_by=None if later is None else later.number,
        for_review=any(may_teach(replace(each, accepted=True), rule) for each in lesson.corrections),
        unlearning=unlearning,
        request=request,
        before=before,
        after=after,
        after_version=after_version,
    )


def _teaches(lesson: Lesson, rule: ReviewRule) -> bool:
    """Whether any of its corrections may be practised."""
    waits = standing(lesson).progress is Progress.WAITING
    return not waits and any(
        may_teach(correction, rule) and lesson.practised_on(correction.scope)
        for correction in lesson.corrections
    )


def _of_its_kind(lesson: Lesson, asked: Sequence[PersonRequest]) -> list[PersonRequest]:
    """The requests of its source, of the kinds of task whose complaints it came from."""
    own, sessions = [each for each in asked if each.source == lesson.source], set[str]()
    sessions.update(each.session for each in lesson.corrections)
    kinds = {each.kind for each in own if each.complaint and each.session in sessions}
    return [each for each in own if each.kind in kinds] if kinds else own


def _example(store: Store, lesson: Lesson) -> tuple[str | None, str | None, str | None, int | None]:
    """A request, the answer that was recorded, and another of the newest ones that practised it with its
    version: of a corrected turn, if there is one. Without another, a corrected turn alone."""
    corrected = {each.turn for each in lesson.corrections}
    newest = sorted(lesson.answers[: -2 * WINDOW - 1 : -1], key=lambda each: each.prompt not in corrected)
    turns = {each.prompt for each in newest} | {each.turn for each in newest} | {lesson.corrections[0].turn}
    texts = {turn: _shown(message) for turn, message in store.messages_of(turns).items()}
    shown = next((each for each in newest if texts.get(each.turn) != texts.get(each.prompt)), None)
    turn = lesson.corrections[0].turn if shown is None else shown.prompt
    record = store.find(turn)
    messages = () if record is None else record.turn.conversation.messages
    request = next((_shown(each) for each in reversed(messages) if each.role == "user"), None)
    if shown is None or shown.turn not in texts:
        return request, texts.get(turn), None, None
    return request, texts.get(turn), texts[shown.turn], shown.oldest_version


def _shown(message: Message) -> str:
    return one_line(message, EXAMPLE)


def learned_from(store: Store, turns: Sequence[str]) -> list[tuple[int, str, int]]:
    """The lessons of these turns: number, words and how many of the turns, those with most first."""
    found = Counter(store.lessons_on(turns).values())
    return [(number, words, count) for (number, words), count in found.most_common()]


def edit(store: Store, number: int, words: str, redaction: Redaction, *, now: float) -> None:
    """Have a lesson teach in these words from now on. What waits with the old ones ends. Raises SettingError
    for words that cannot teach."""
    said = " ".join(words.split()) if is_seen(words) else ""
    if not said or len(said) > MOST_WORDS:
        raise SettingError(f"a lesson has 1 to {MOST_WORDS} characters, not {len(said)}")
    if redaction.found([said]):
        raise SettingError("these words hold a secret, which would be learned: leave it out")
    if speaks_of_hints(said):
        raise SettingError("these words mention hints, which the model would learn to do: write what to do")
    _change(store, number, now=now, words=said, spoils=None)


def drop(store: Store, number: int, *, now: float) -> None:
    """Never practise a lesson again, however often it is given; waiting answers end. Its corrections still
    teach once."""
    _change(store, number, now=now, dropped=now)


def _change(store: Store, number: int, *, now: float, **columns: float | str | None) -> None:
    """Answers that wait for the learner end; one in an update trains if that update becomes a version."""
    with store.transaction():
        store.change_lesson(number, **columns)
        waiting = [each.turn for each in store.lesson(number).answers if each.state is State.JUDGED]
        store.skip(waiting, Reason.LESSON_CHANGED, now=now)


def restrict(store: Store, number: int, scope: str | None, *, now: float) -> None:
    """Practise a lesson on the prompts of one client to which it was given; None: of each again. Waiting
    answers end. Raises SettingError for another client."""
    said = dict.fromkeys(each.scope for each in store.lesson(number).corrections)
    if scope is not None and scope not in said:
        raise SettingError(f"lesson {number} was not given to {scope}, but to {', '.join(said)}")
    _change(store, number, now=now, scope=scope)


def accept(store: Store, number: int) -> None:
    """Practise a lesson on other prompts too, whatever was approved, and one that was dropped again; an order
    to unlearn it ends."""
    with store.transaction():
        store.change_lesson(number, general=1, dropped=None)
        store.cancel_forgetting(practice_of(number))


def practised_with(store: Store, number: int) -> list[int]:
    """The other lessons with answers that read this one too, and go with it."""
    found = learned_from(store, store.turn_ids(practice_of(number)))
    return sorted(other for other, _, _ in found if other != number)


def order_unlearning(store: Store, number: int, *, now: float) -> str | None:
    """Drop a lesson and order that what practised it is forgotten; the order's name, for the learner that
    carries it out. None: nothing practised it."""
    name = practice_of(number)
    with store.transaction():
        drop(store, number, now=now)
        if not store.turn_ids(name):
            return None
        store.order_forgetting(name, replay=True, now=now)
    return name

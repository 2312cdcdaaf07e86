"""The next round of practice: which lesson, which prompts, and which approved turns join.

A lesson is tested with approved turns before it is practised. The test and the choice of approved turns read
the teacher's log-probs of an approved response, with and without the lesson in its prompt. The teacher is the
frozen base with the lessons that were practised before. A lesson under which it would no longer give approved
answers would spoil them wherever it is spread; those that it gives go along, and keep what the others taught.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import NamedTuple

from afterwit.gateway.auth import Caller, Permission
from afterwit.learning.schedule import NOW, largest_share, next_of_all, that_teach, with_note
from afterwit.learning.settings import LearnerSettings
from afterwit.lifecycle import Reason, State
from afterwit.practice.lessons import (
    DAY_S,
    MANY_OTHERS,
    MOST_SAMPLED,
    OTHERS,
    STAND,
    Correction,
    Given,
    Lesson,
    PracticeSettings,
    Progress,
    Spoils,
    Wording,
    hint_of,
    in_turn,
    names_a_case,
    replaced,
    rests,
    rests_all,
    spread,
    standing,
)
from afterwit.promotion.suite import TEXT, SuiteItem
from afterwit.ranges import in_hours
from afterwit.store import Store
from afterwit.text import counted
from afterwit.turn import Message, RecordedTurn, Sampled, Sampling, Turn, source_of
from afterwit.verdict import ReviewRule, Waiting
from afterwit.vetting.own_words import MOST_HINT

PRACTISED_FOR_S = 30 * DAY_S
"""Since a lesson was last given: an older one waits until it is given again."""
LOOKED_AT, SPREAD_OVER = 512, 40
"""The newest turns among which prompts are looked for, and the prompts over which a lesson is spread."""
PER_PROMPT = 8
"""Answers to one prompt since the lesson was last given, but for those that were taken back: more would learn
it by heart. New conversations bring new prompts."""
TESTED = 8
"""The newest approved turns of its kind, and as many of others, that a lesson is tested with: the engine
scores two rows of each, once."""
MAY_SPOIL = 0.25
"""Share of the approved turns of its kind that a lesson may contradict and still be spread."""
MOST_EARLIER = 5
"""Lessons that the teacher reads before the practised one."""


class Tested(NamedTuple):
    """An approved response under a lesson."""

    given: bool
    """The teacher gives it without the lesson."""
    spoiled: bool
    """The teacher gives it without the lesson, and would not with it."""


class Hints(NamedTuple):
    """The hints that the teacher reads in a test."""

    without: str
    """The lessons that were practised before; empty: none."""
    shown: str
    """Those and the tested one."""


Known = Mapping[tuple[Hints, str], Tested]
"""(hints, approved turn) -> how they agree."""


@dataclass(slots=True, kw_only=True)
class Tried:
    """The failures of earlier rounds, which the store does not hold: they are tried again after a restart."""

    refused: set[str] = field(default_factory=set)
    """Turns whose prompts the model or its template refuses now."""
    recorded_only: set[tuple[str, str]] = field(default_factory=set)
    """Corrected turns, with a lesson's words, for which the model writes no requests."""
    cases: set[tuple[str, str]] = field(default_factory=set)
    """Those whose words name a case, by the requests that it writes."""


MOST_TOKENS = 2**20
"""Of an answer to a prompt that was recorded elsewhere, before the settings and the context cut it."""
IDLE = "no correction waits to be practised"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The answers of one update, before they are sampled."""

    lesson: Lesson
    correction: Correction
    """The correction whose words teach."""
    prompts: tuple[Turn, ...]
    """The turns whose prompts are answered again; one may come several times."""
    along: tuple[Turn, ...] = ()
    """Approved turns whose prompts go along."""
    own: Turn
    """The corrected turn, whose instructions synthetic requests follow."""
    requests: tuple[str, ...] = ()
    """Of other conversations: by them a lesson is general, or names a case."""
    synthetic: int | None = None
    """How many requests the model writes itself; None: it writes none, and `requests` alone decide."""
    earlier: tuple[Wording, ...] = ()
    """The other lessons that the teacher reads, the last given last."""

    @property
    def words(self) -> str:
        """Of the correction that teaches."""
        return self.lesson.words_of(self.correction)


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """A lesson, and approved turns that it is tested with before it is practised."""

    lesson: Lesson
    hints: Hints
    kind: str
    """Of the action that the lesson is about."""
    items: tuple[SuiteItem, ...]
    """All that count."""
    new: tuple[tuple[SuiteItem, Turn], ...]
    """Those that it was not tested with yet."""

    def whose(self, known: Known) -> Spoils | None:
        """The owner of the approved turns of this kind that the lesson contradicts, by these tests: others,
        its own source, or None."""
        alike = [
            (item.source == self.lesson.source, known[self.hints, item.turn].spoiled)
            for item in self.items
            if of_kind(item, self.kind) and (self.hints, item.turn) in known
        ]
        for own, found in ((False, Spoils.OTHERS), (True, Spoils.OWN)):
            spoiled = [gone for source, gone in alike if source is own]
            if sum(spoiled) > MAY_SPOIL * len(spoiled):
                return found
        return None

    def companions(self, known: Known) -> list[str]:
        """The approved turns whose prompts may go along, newest first: the teacher gives their responses,
        with the lesson too."""
        tests = ((item.turn, known.get((self.hints, item.turn))) for item in self.items)
        return [turn for turn, test in tests if test is not None and test.given and not test.spoiled]


def next_round(
    store: Store,
    settings: PracticeSettings,
    learner: LearnerSettings,
    *,
    now: float,
    tried: Tried | None = None,
    known: Known | None = None,
) -> Round | Test | str:
    """The lesson that is practised next and the prompts to answer, the test of it that comes first, or why
    nothing is practised now.

    `known`: tests so far; None: there can be none.
    """
    learner = with_note(learner, store.note("learn"))
    if (rest := _rest(store, settings, learner, now=now)) is not None:
        return rest
    if not (lessons := store.lessons(said_since=now - PRACTISED_FOR_S)):
        return IDLE
    resting = {
        adapter: reason
        for adapter in {lesson.adapter for lesson in lessons}
        if (reason := rests_all(store.events(adapter), now=now))
    }
    paused = dict.fromkeys(store.paused_adapters(), "paused")
    excluded = store.excluded()
    gone = _replaced(lessons, learner.teaching, excluded)

    @cache  # for each source once, however many lessons ask
    def practised(adapter: str, source: str) -> list[Wording]:
        own = [each for each in lessons if each.adapter == adapter and each.number not in gone]
        return _practised(_general(own, source, learner.teaching, excluded))

    facts = _Facts(
        settings=settings,
        learner=learner,
        now=now,
        tried=tried or Tried(),
        known=known,
        practised=practised,
        replaced=gone,
        waiting=store.waiting(now=now),
        excluded=excluded,
        resting=paused | resting,
        silent=_silent(store),
    )
    why = Counter[str]()
    for lesson in in_turn(lessons):
        found = _round_of(store, lesson, facts)
        if not isinstance(found, str):
            return found
        why[found] += 1
    return "; ".join(f"{counted(number, 'lesson')}: {reason}" for reason, number in why.items())


def _rest(store: Store, settings: PracticeSettings, learner: LearnerSettings, *, now: float) -> str | None:
    """Why no lesson at all is practised now; None: one may be."""
    clock = time.localtime(now)
    if not in_hours(learner.hours, clock.tm_hour, clock.tm_min):
        return f"rests outside of learner.hours, {learner.hours}"
    if store.paused() is not None:
        return "rests while learning is paused"
    if store.in_update(now=now):
        return "waits for the update that is under way"
    sampled, taught = store.practised_since(now - DAY_S, until=now)
    most = settings.a_day * learner.batch
    if taught >= most:
        return f"practised enough for a day ({counted(settings.a_day, 'update')})"
    if sampled >= MOST_SAMPLED * most:
        return f"practised enough for a day ({counted(sampled, 'answer')}, most of them good already)"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """The arguments of `next_round`, and the store's facts about all lessons."""

    settings: PracticeSettings
    learner: LearnerSettings
    now: float
    tried: Tried
    known: Known | None
    practised: Callable[[str, str], Sequence[Wording]]
    """The lessons of an adapter and a source that a teacher may read before another, the last given first."""
    replaced: Collection[int]
    """Numbers of the lessons that a later one replaces."""
    waiting: Sequence[Waiting]
    excluded: frozenset[str]
    resting: Mapping[str, str]
    """Why an adapter practises nothing now, by its name."""
    silent: frozenset[str]
    """The keys that may not teach, or not any more."""


def _round_of(store: Store, lesson: Lesson, facts: _Facts) -> Round | Test | str:
    """The round of one lesson, its test if that comes first, or why it is not practised now."""
    settings, learner, now, tried, known = facts.settings, facts.learner, facts.now, facts.tried, facts.known
    if (reason := facts.resting.get(lesson.adapter)) is not None:
        return reason
    if reason := rests(lesson, now=now, most=settings.updates * learner.batch):
        return reason
    usable = _usable(lesson, learner.teaching, facts.excluded)
    if lesson.source in facts.silent:
        return "its key may not teach"
    if not usable:
        return Progress.WAITING.value
    if lesson.number in facts.replaced:
        return Progress.REPLACED.value
    if not (room := _room(facts.waiting, lesson, learner, now=now)):
        return "waits for the next update"
    correction, along = usable[-1], tuple[Turn, ...]()
    words = lesson.words_of(correction)
    earlier = _earlier(lesson, words, facts)
    if known is not None:
        hints = Hints(hint_of(earlier, ""), hint_of(earlier, words))
        test = _test_of(store, lesson, correction, hints, known, facts.excluded)
        if test.new or test.whose(known) is not lesson.spoils:
            return test
        along = _along(store, test, known, int(settings.approved * room + 0.5))
    room -= len(along)
    named = correction.turn, words
    invents = bool(settings.synthetic) and settings.group == 1 and named not in tried.recorded_only
    fewest = MANY_OTHERS if invents else OTHERS
    found = _prompts(store, lesson, usable, tried.refused, fewest=fewest, of_a_case=named in tried.cases)
    if found is not None:
        synthetic = None
        if invents and found.general:
            synthetic = room - min(len(found.asked), room - int(settings.synthetic * room))
        recorded = room - (synthetic or 0)
        answered = (answer.prompt for answer in (*lesson.answers, *lesson.along))
        chosen = spread(list(found.asked), answered, -(-recorded // settings.group))
        prompts = tuple(found.asked[id] for id in chosen for _ in range(settings.group))[:recorded]
        if prompts or synthetic:
            return Round(
                lesson=lesson,
                correction=correction,
                earlier=earlier,
                prompts=prompts,
                along=along,
                own=found.own,
                requests=found.requests,
                synthetic=synthetic,
            )
    return "practised on every prompt of its kind"


def _earlier(lesson: Lesson, words: str, facts: _Facts) -> tuple[Wording, ...]:
    """The other practised lessons of its source that the teacher reads before these words: the last given, in
    their order, as far as one hint has room."""
    chosen, room = list[Wording](), MOST_HINT - len(words)
    for each in facts.practised(lesson.adapter, lesson.source):
        asked = each.lesson.scope in (None, lesson.scope) and each.lesson.number != lesson.number
        if asked and len(each.words) < room and len(chosen) < MOST_EARLIER:
            chosen.append(each)
            room -= len(each.words) + 1
    return tuple(reversed(chosen))


def _practised(lessons: Iterable[Wording]) -> list[Wording]:
    """Those of these lessons that a version learned from, and that stand."""
    return [
        each
        for each in lessons
        if any(answer.state is State.TRAINED for answer in each.lesson.answers)
        if standing(each.lesson).progress not in (Progress.DROPPED, Progress.WAITING)
    ]


def untaught(store: Store, adapter: str, scope: str, rule: ReviewRule, *, now: float) -> list[str]:
    """The words of an adapter's unlearned lessons that a client's prompts may contain, the newest first."""
    lessons = store.lessons(said_since=now - PRACTISED_FOR_S, adapter=adapter)
    own, source = [each for each in lessons if each.practised_on(scope)], source_of(scope)
    if not own or source in _silent(store):
        return []
    gone = _replaced(own, rule, excluded := store.excluded())
    stand = [each for each in own if each.number not in gone]
    return [
        each.words
        for each in _general(stand, source, rule, excluded)
        if standing(each.lesson).progress in (Progress.PRACTISING, Progress.SETTLED)
    ]


def _general(
    lessons: Sequence[Lesson], source: str, rule: ReviewRule, excluded: Collection[str]
) -> Iterator[Wording]:
    """The lessons of a source that any prompt may contain, in the words of their newest corrections that may
    teach; the last given first. None names a case or would spoil approved answers, unless a person accepted
    it."""
    for lesson in sorted(lessons, key=lambda each: (-each.newest, each.number)):
        if lesson.source == source and (usable := _usable(lesson, rule, excluded)):
            found = Wording(lesson, usable[-1])
            unsettled = lesson.general is None and lesson.spoils is None
            if lesson.general or (unsettled and not names_a_case(found.words, "", ())):
                yield found


def _replaced(lessons: Iterable[Lesson], rule: ReviewRule, excluded: Collection[str]) -> Collection[int]:
    """Of the lessons that may teach, those that a later one replaces."""
    return replaced(
        Given(each.number, each.adapter, each.source, each.scope, each.words_of(usable[-1]), dropped=False)
        for each in sorted(lessons, key=lambda each: -each.newest)
        if (usable := _usable(each, rule, excluded))
        and standing(each).progress not in (Progress.DROPPED, Progress.WAITING)
    )


def _usable(lesson: Lesson, rule: ReviewRule, excluded: Collection[str]) -> list[Correction]:
    """The corrections of a lesson that may be practised, oldest first."""
    return [
        correction
        for correction in lesson.corrections
        if correction.session not in excluded
        and may_teach(correction, rule)
        and lesson.practised_on(correction.scope)
    ]


def _test_of(
    store: Store,
    lesson: Lesson,
    correction: Correction,
    hints: Hints,
    known: Known,
    excluded: Collection[str],
) -> Test:
    """The test of a lesson with the newest approved turns of its adapter, of its kind and of others."""
    record = store.find(correction.turn)
    kind = "" if record is None else action(record.turn.message)
    found, new = list[SuiteItem](), list[tuple[SuiteItem, Turn]]()
    left = Counter({True: TESTED, False: TESTED})
    for item in store.suite(lesson.adapter):
        if not left[same := of_kind(item, kind)]:
            continue
        if (hints, item.turn) not in known:
            approved = store.find(item.turn)
            if approved is None or approved.turn.session in excluded:
                continue
            if any(approved.sampled_turn.sampled.forced):
                continue
            new.append((item, approved.sampled_turn))
        left[same] -= 1
        found.append(item)
    return Test(lesson=lesson, hints=hints, kind=kind, items=tuple(found), new=tuple(new))


def _along(store: Store, test: Test, known: Known, count: int) -> tuple[Turn, ...]:
    """`count` approved turns whose prompts go along, those that went along least first."""
    chosen = spread(test.companions(known), (answer.prompt for answer in test.lesson.along), count)
    records = map(store.find, chosen)
    return tuple(record.sampled_turn for record in records if record is not None)


def _silent(store: Store) -> frozenset[str]:
    """The keys that may not teach, or not any more."""
    keys = store.keys()
    return frozenset(
        key.name
        for key in keys
        if key.revoked or not Caller(name=key.name, scopes=key.scopes).may(Permission.TEACH)
    )


def may_teach(correction: Correction, rule: ReviewRule) -> bool:
    """Whether a correction may be practised: it waits for no person, and nothing took it back."""
    stands = correction.state in (State.JUDGED, State.TRAINED) or correction.reason in STAND
    return stands and not rule.withholds(correction.flags, accepted=correction.accepted, rewarded=False)


def _room(waiting: Sequence[Waiting], lesson: Lesson, learner: LearnerSettings, *, now: float) -> int:
    """How many answers would fill the lesson's adapter's next update; 0 if it is due, or waits for others."""
    own = [turn._replace(oldest_version=NOW) for turn in waiting if turn.adapter == lesson.adapter]
    choice = next_of_all(learner, own, (), now=now)
    if choice.turns:
        return 0
    taught = that_teach(own, learner.teaching)
    sources = {turn.source for turn in taught} | {lesson.source}
    share = largest_share(learner.batch, sources=len(sources), share=learner.source_share)
    share -= sum(turn.source == lesson.source for turn in taught)
    for_review = sum(turn.practised for turn in own) - sum(turn.practised for turn in taught)
    return max(0, min(learner.batch - choice.ready - choice.held - for_review, share))


class _Prompts(NamedTuple):
    """The prompts that may practise a lesson."""

    own: Turn
    """The newest corrected turn."""
    asked: Mapping[str, Turn]
    """By id, those to be preferred first."""
    general: bool
    """Whether the lesson may be practised on other requests than those that led to it."""
    requests: tuple[str, ...]
    """Of other conversations than the newest corrected turn's."""


def _prompts(
    store: Store,
    lesson: Lesson,
    usable: Sequence[Correction],
    without: Collection[str],
    *,
    fewest: int = OTHERS,
    of_a_case: bool = False,
) -> _Prompts | None:
    """The prompts of the lesson's own turns, the newest first, then those of the same kind of action in other
    sessions if the lesson is general: of each session the first one. None: its turns are gone."""
    own = [each.turn for each in usable[: -SPREAD_OVER - 1 : -1]]
    found = {turn: _to_ask(record.turn) for turn in own if (record := store.find(turn)) is not None}
    if not found:
        return None
    newest = next(iter(found.values()))
    kind, said_in = action(newest.message), {each.session for each in lesson.corrections}
    others = dict[str, int]()
    for seq, _, session, message in store.prompts(lesson, limit=LOOKED_AT):
        if session not in said_in and action(message) == kind:
            others[session] = seq
    records = store.asked(list(others.values())[: SPREAD_OVER - len(found)])
    asked_too = [_to_ask(record.turn) for record in records]
    words, own_turns = lesson.words_of(usable[-1]), list(found.values())
    general = is_general(lesson, words, own_turns, asked_too, fewest=fewest)
    general = general and (lesson.general is True or not of_a_case)
    requests = _requests_of_others(newest, [*own_turns, *asked_too])
    if general:
        found |= {turn.id: turn for turn in asked_too}
    sampled = lesson.sampled_since(lesson.newest)
    often = Counter(answer.prompt for answer in sampled if answer.reason is not Reason.REVERTED)
    asked = {
        id: turn
        for id, turn in found.items()
        if id not in without and often[id] < PER_PROMPT and not any(turn.sampled.forced)
    }
    return _Prompts(newest, asked, general, requests)


def _to_ask(turn: RecordedTurn) -> Turn:
    """A turn for sampling its prompt again; one that was recorded elsewhere holds only its conversation, so
    it gets the default sampling."""
    if isinstance(turn, Turn):
        return turn
    known = {each.name: getattr(turn, each.name) for each in fields(RecordedTurn)}
    nothing = Sampled(ids=(), logprobs=(), versions=(), forced=())
    return Turn(**known, prompt_ids=(), sampling=Sampling(max_tokens=MOST_TOKENS), sampled=nothing)


def is_general(
    lesson: Lesson, words: str, own: Collection[Turn], others: Sequence[Turn], *, fewest: int = OTHERS
) -> bool:
    """Whether a lesson may be practised in these words on other prompts: a person accepted it, or they name
    no case, as far as `fewest` prompts of other conversations can tell, its own among them."""
    if lesson.general is not None or lesson.spoils is not None:
        return lesson.general is True
    every = [*own, *others]
    return not any(names_case(words, turn, _requests_of_others(turn, every), fewest=fewest) for turn in own)


def _requests_of_others(turn: Turn, others: Iterable[Turn]) -> tuple[str, ...]:
    """The requests of the others, but of the turn's own conversation."""
    return tuple(request_of(each) for each in others if each.session != turn.session)


def names_case(words: str, turn: Turn, requests: Sequence[str], *, fewest: int = OTHERS) -> bool:
    """Whether a hint belongs to this turn's request alone, by these other requests."""
    tools = " ".join(tool["function"]["name"] for tool in turn.conversation.tools)
    return names_a_case(words, request_of(turn), requests, tools=tools, fewest=fewest)


def request_of(turn: Turn) -> str:
    """The person's last words in a prompt."""
    words = (each.content or "" for each in reversed(turn.conversation.messages) if each.role == "user")
    return next(words, "")


def action(message: Message) -> str:
    """The kind of a response's action: the tool that it calls first; empty for text."""
    return message.tool_calls[0].name if message.tool_calls else ""


def of_kind(item: SuiteItem, kind: str) -> bool:
    """Whether an approved response is this kind of action: a call of the tool of this name; empty: text."""
    return item.stratum.split(" ")[0] == (kind or TEXT)

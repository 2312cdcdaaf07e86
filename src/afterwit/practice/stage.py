"""The practice stage: while nothing else waits, answers recorded prompts again, and a lesson teaches on them.

A practised answer is a turn of the kind `practice`: sampled from the present weights without the hint, stored
at once as judged, with the words of its lesson as its only hint. It belongs to the session of the correction.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import fsum, isfinite
from typing import Literal

from afterwit.chat_format.render import Renderer
from afterwit.engines.port import Engine, Score, Weights
from afterwit.errors import RequestError, RequestRefused, TurnNotFound
from afterwit.gateway.reply import respond
from afterwit.judging.hinted_prompts import Placement, hinted_prompts
from afterwit.judging.stage import AfterVerdict
from afterwit.learning.schedule import NOW, next_of_all, with_note
from afterwit.learning.settings import LearnerSettings
from afterwit.lifecycle import Reason, State
from afterwit.practice.lessons import (
    CLOSE,
    DAY_S,
    Fresh,
    Lesson,
    PracticeSettings,
    Progress,
    Said,
    in_turn,
    names_a_case,
    rests,
    rests_all,
    spread,
    standing,
)
from afterwit.ranges import in_hours
from afterwit.store import AsyncStore, Record, Store
from afterwit.teaching.redaction import Redaction
from afterwit.teaching.review import Rule
from afterwit.teaching.sources import largest_share
from afterwit.text import counted
from afterwit.turn import ENTROPY_BYTES, Kind, Message, Turn, call_id, scoring_temperature, turn_id
from afterwit.verdict import Flag, Waiting, untrainable
from afterwit.worker import BackOff, Report, Signals, StageHealth, work

STAGE: Literal["practice"] = "practice"
POLL_S = 1.0
"""Seconds between two looks at the store."""
PRACTISED_FOR_S = 30 * DAY_S
"""Since a lesson was said last: an older one waits until it is said again."""
LOOKED_AT, SPREAD_OVER = 512, 40
"""The newest turns among which prompts are looked for, and the prompts over which a lesson is spread."""
PER_PROMPT = 8
"""Answers to one prompt since the lesson was said last: more would learn it by heart. New conversations
bring new prompts."""
WORDS_TOLD = 60
"""Characters of a lesson in a status."""
IDLE = "no correction waits to be practised"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The answers of one update, before they are sampled."""

    lesson: Lesson
    said: Said
    """The correction whose words teach."""
    prompts: tuple[Turn, ...]
    """The turns whose prompts are answered again; one may come several times."""


class Practice:
    """Practises lessons one update at a time."""

    def __init__(
        self,
        *,
        store: AsyncStore,
        engine: Engine,
        renderer: Renderer,
        settings: PracticeSettings,
        learner: LearnerSettings,
        placement: Placement = Placement.LAST_USER,
        redaction: Redaction = Redaction(),
        now: Callable[[], float] = time.time,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._store, self._engine, self._renderer = store, engine, renderer
        self._settings, self._learner, self._redaction = settings, learner, redaction
        self._placement = placement
        self._now, self._entropy = now, entropy
        self._refused: set[str] = set()
        """Turns whose prompts the model or its template refuses now."""
        self.doing = IDLE
        """In a sentence, for the status."""

    async def run(self, signals: Signals, report: Report) -> None:
        """Practise whenever there is room until `signals.stop` is set."""
        health = StageHealth(STAGE, report, doing=lambda: self.doing)

        async def step() -> bool:
            busy = await self.step()
            await health.healthy()
            return busy

        back_off = BackOff(base_s=POLL_S, max_s=60.0, random=random.random)
        await work(step, signals=signals, health=health, poll_s=POLL_S, back_off=back_off)

    async def step(self) -> bool:
        """Sample and store the answers of one update, if one is due; whether any were stored.

        All are stored together: a crash before that leaves nothing. Raises EngineError if the engine fails.
        """
        now, refused = self._now(), frozenset(self._refused)
        found = await self._store.call(
            lambda store: next_round(store, self._settings, self._learner, now=now, without=refused)
        )
        if isinstance(found, str):
            self.doing = found
            return False
        adapter = found.lesson.adapter
        newest = await self._store.call(lambda store: store.newest_version(adapter))
        if self._engine.live(adapter) not in (None, newest):
            self.doing = f"waits until version {newest} is served"
            return False
        self.doing = told(found.lesson, self._settings.updates * self._learner.batch)
        lesson, words = found.lesson, found.lesson.words_of(found.said)
        sampled = await asyncio.gather(*(self._answer(found, prompt, words) for prompt in found.prompts))
        answers, at = [each for each in sampled if each is not None], self._now()
        return bool(answers) and await self._store.call(
            lambda store: store.practised(lesson, words, answers, now=at)
        )

    async def _answer(self, found: Round, prompt: Turn, words: str) -> Fresh | None:
        """A new turn that answers the prompt, measured; None if the prompt cannot be answered."""
        now = self._now()
        sampling = replace(
            prompt.sampling,
            seed=None,
            max_tokens=min(prompt.sampling.max_tokens, self._settings.max_tokens),
            temperature=scoring_temperature(prompt.sampling.temperature),
        )
        try:
            asked, reply = await respond(
                self._engine,
                self._renderer,
                prompt.conversation,
                sampling,
                now=prompt.created,
                adapter=prompt.adapter,
                background=True,
            )
        except (RequestError, RequestRefused):
            self._refused.add(prompt.id)
            return None
        id = turn_id(now, self._entropy(ENTROPY_BYTES))
        turn = replace(
            prompt,
            id=id,
            scope=found.said.scope,
            session=found.said.session,
            parent=None,
            kind=Kind.PRACTICE,
            created=now,
            conversation=asked.conversation,
            prompt_ids=asked.ids,
            sampling=asked.sampling,
            sampled=reply.sampled(),
            message=reply.message(partial(call_id, id)),
            finish=reply.ending,
        )
        reason = untrainable(turn)
        if reason is None and self._redaction.in_message(turn.message):
            reason = Reason.HOLDS_SECRET
        gap = await self._gap(turn, words) if reason is None else None
        if gap is not None and gap <= CLOSE:
            reason = Reason.ALREADY_GOOD
        return Fresh(turn, prompt.id, reason, gap)

    async def _gap(self, turn: Turn, words: str) -> float | None:
        """The answer's gap to the teacher, if the engine serves it and can score as the answer was sampled;
        None: an update measures it."""
        can, tau = self._engine.capabilities, scoring_temperature(turn.sampling.temperature)
        can_score = can.base_weights and can.scored_ids and (can.scored_tau or tau == 1.0)
        if self._learner.teacher != "base" or not can_score:
            return None
        ids, room = turn.sampled.ids, self._engine.facts.context_length - len(turn.sampled.ids)
        prompts, _ = await asyncio.to_thread(
            hinted_prompts, turn, (words,), self._renderer, self._placement, room
        )
        if not prompts:
            return None
        row = Score(prompt_ids=prompts[0][1], response_ids=ids, tau=tau)
        (scored,) = await self._engine.score([row], top=1, weights=Weights.BASE)
        gap = fsum(turn.sampled.logprobs) - fsum(scored.logprobs)
        return gap if isfinite(gap) else None


def next_round(
    store: Store,
    settings: PracticeSettings,
    learner: LearnerSettings,
    *,
    now: float,
    without: Collection[str] = (),
) -> Round | str:
    """The lesson that is practised next and the prompts to answer, or why nothing is practised now.

    `without`: turns whose prompts cannot be answered.
    """
    lessons = store.lessons(said_since=now - PRACTISED_FOR_S)
    if not lessons:
        return IDLE
    clock, learner = time.localtime(now), with_note(learner, store.note("learn"))
    if not in_hours(learner.hours, clock.tm_hour, clock.tm_min):
        return f"rests outside of learner.hours, {learner.hours}"
    if store.paused() is not None:
        return "rests while learning is paused"
    if store.in_update(now=now):
        return "waits for the update that is under way"
    if store.practised_since(now - DAY_S) >= settings.a_day * learner.batch:
        return f"practised enough for a day ({counted(settings.a_day, 'update')})"
    why = dict[str, int]()
    waiting, excluded, paused = store.waiting(now=now), store.excluded(), store.paused_adapters()
    events = {adapter: store.events(adapter) for adapter in {each.adapter for each in lessons}}
    for lesson in in_turn(lessons):
        reason = rests_all(events[lesson.adapter], now=now) or rests(
            lesson, now=now, most=settings.updates * learner.batch
        )
        usable = [said for said in lesson.said if said.session not in excluded]
        usable = [said for said in usable if may_teach(said, learner.teaching)]
        if reason is None and lesson.adapter in paused:
            reason = "paused"
        elif reason is None and not usable:
            reason = Progress.WAITING.value
        elif reason is None:
            if not (room := _room(waiting, lesson, learner, now=now)):
                return "waits for the next update"
            if prompts := _prompts(store, lesson, usable, room, without):
                return Round(lesson=lesson, said=usable[-1], prompts=prompts)
            reason = "practised on every prompt of its kind"
        why[reason] = why.get(reason, 0) + 1
    return "; ".join(f"{counted(number, 'lesson')}: {reason}" for reason, number in why.items())


def may_teach(said: Said, rule: Rule) -> bool:
    """Whether a correction may be practised: it waits for no person, and nothing took it back."""
    stands = said.state in (State.JUDGED, State.TRAINED) or said.reason is Reason.STALE
    return stands and not rule.withholds(said.flags, accepted=said.accepted, rewarded=False)


def _room(waiting: Sequence[Waiting], lesson: Lesson, learner: LearnerSettings, *, now: float) -> int:
    """How many answers would fill the lesson's adapter's next update; 0 if it is due, or waits for others."""
    own = [turn._replace(oldest_version=NOW) for turn in waiting if turn.adapter == lesson.adapter]
    choice = next_of_all(learner, own, (), now=now)
    if choice.turns:
        return 0
    taught = [
        turn
        for turn in own
        if not learner.teaching.withholds(turn.flags, accepted=turn.accepted, rewarded=turn.rewarded)
    ]
    sources = {turn.source for turn in taught} | {lesson.source}
    share = largest_share(learner.batch, sources=len(sources), share=learner.source_share)
    share -= sum(turn.source == lesson.source for turn in taught)
    return max(0, min(learner.batch - choice.ready - choice.held, share))


def _prompts(
    store: Store, lesson: Lesson, usable: Sequence[Said], count: int, without: Collection[str]
) -> tuple[Turn, ...]:
    """The prompts of the lesson's own turns, the newest first, then those of the same kind of action in other
    sessions if the lesson is general: of each session the first one."""
    own = dict.fromkeys(said.turn for said in reversed(usable))
    found = {turn: record.sampled_turn for turn in own if (record := _stored(store, turn)) is not None}
    if not found:
        return ()
    kind, said_in = action(next(iter(found.values())).message), {said.session for said in lesson.said}
    others = dict[str, int]()
    for seq, _, session, message in store.prompts(lesson.adapter, lesson.source, limit=LOOKED_AT):
        if session not in said_in and action(message) == kind:
            others[session] = seq
    records = store.asked(list(others.values())[: SPREAD_OVER - len(found)])
    if records and is_general(lesson, found.values(), [record.sampled_turn for record in records]):
        found |= {record.turn.id: record.sampled_turn for record in records}
    often = Counter(answer.prompt for answer in lesson.since(lesson.newest))
    asked = {
        id: turn
        for id, turn in found.items()
        if id not in without and often[id] < PER_PROMPT and not any(turn.sampled.forced)
    }
    chosen = spread(list(asked), (answer.prompt for answer in lesson.answers), count)
    return tuple(asked[id] for id in chosen)


def _stored(store: Store, turn: str) -> Record | None:
    try:
        return store.turn(turn)
    except TurnNotFound:
        return None


def is_general(lesson: Lesson, own: Collection[Turn], others: Sequence[Turn]) -> bool:
    """Whether a lesson may be practised on other prompts: a person accepted it, or it names no case."""
    if lesson.general is not None:
        return lesson.general
    requests = [_request(turn) for turn in others]
    return not any(names_a_case(lesson.words, _request(turn), requests) for turn in own)


def _request(turn: Turn) -> str:
    """The person's last words in a prompt."""
    said = (each.content or "" for each in reversed(turn.conversation.messages) if each.role == "user")
    return next(said, "")


def action(message: Message) -> str:
    """The kind of a response's action: the tool that it calls first; empty for text."""
    return message.tool_calls[0].name if message.tool_calls else ""


def told(lesson: Lesson, most: int) -> str:
    """What is practised, in a sentence."""
    words, gap = " ".join(lesson.words.split()), standing(lesson).gap
    words = words if len(words) <= WORDS_TOLD else words[: WORDS_TOLD - 1] + "…"
    near = "" if gap is None else f", gap {gap:.2g} nats"
    return f"practises “{words}”: {len(lesson.since(lesson.newest))} of {most} answers{near}"


def with_lessons(watch: AfterVerdict, rule: Rule) -> AfterVerdict:
    """After each verdict: `watch`, and the lesson that the turn carries now."""

    def judged(store: Store, turn: str, *, now: float) -> None:
        watch(store, turn, now=now)
        record = store.turn(turn)
        verdict, waits = record.verdict, record.state is State.JUDGED and record.opd
        of_tools = Flag.TOOL_WORDS in record.flags and not rule.tool_hints
        if waits and not of_tools and verdict is not None and verdict.hints:
            store.teach(record.sampled_turn, verdict.hints[0], now=now)
        else:
            store.untaught(turn)

    return judged

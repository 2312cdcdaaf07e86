"""The practice stage: while nothing else waits, answers recorded prompts again, and a lesson teaches on them.

A practised answer is a turn of the kind `practice`: sampled from the present weights without the hint, stored
at once as judged. Its hint is the words of its lesson, after those of lessons that were practised before. It
belongs to the session of the correction.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import fsum, isfinite
from typing import Literal

from afterwit.chat_format.render import Renderer
from afterwit.engines.port import Engine, Score, Weights
from afterwit.errors import JudgeRefused, JudgeUnavailable, RequestError, RequestRefused, SettingError
from afterwit.gateway.reply import respond
from afterwit.judging.hinted_prompts import Placement, hinted_prompts, recites
from afterwit.judging.prompts import follow_question
from afterwit.judging.questions import seed_of
from afterwit.judging.stage import AfterVerdict
from afterwit.judging.verdicts import Ask
from afterwit.judging.voting import evaluation_vote
from afterwit.learning.settings import LearnerSettings
from afterwit.lifecycle import Reason, State
from afterwit.practice.lessons import (
    CLOSE,
    Fresh,
    Lesson,
    PracticeSettings,
    Spoils,
    best_supported,
    hint_of,
    standing,
)
from afterwit.practice.rounds import IDLE, Hints, Round, Test, Tested, Tried, names_case, next_round
from afterwit.practice.synthetic import SyntheticRequests
from afterwit.store import AsyncStore, Store
from afterwit.text import counted
from afterwit.turn import ENTROPY_BYTES, Kind, Message, Turn, call_id, scoring_temperature, turn_id
from afterwit.verdict import Flag, ReviewRule, untrainable
from afterwit.vetting.redaction import Redaction
from afterwit.worker import BackOff, Report, Signals, StageHealth, work

STAGE: Literal["practice"] = "practice"
POLL_S = 1.0
"""Seconds between two looks at the store."""
LOOKS = 10
"""How many times as long as its look at the store took the stage rests, if nothing is due: requests wait
while it looks, a second for a thousand lessons."""
MOST_KNOWN = 4096
"""Tests that are remembered; after that all are made again."""


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
        ask: Ask | None = None,
        now: Callable[[], float] = time.time,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`ask` asks the judge of the answers of a group; None: no group is judged."""
        self._store, self._engine, self._renderer = store, engine, renderer
        self._settings, self._learner, self._redaction = settings, learner, redaction
        self._placement, self._ask = placement, ask
        self._now, self._entropy = now, entropy
        self._known: dict[tuple[Hints, str], Tested] = {}
        self._tested: set[tuple[int, Hints, Spoils | None]] = set()
        """Results by lesson: two lessons whose tests depend on each other would be tested without a rest."""
        self._synthetic = SyntheticRequests(engine, renderer, redaction)
        self._tried = Tried()
        self._looked_s = 0.0
        """Seconds that the last look at the store took."""
        self.doing = IDLE
        """In a sentence, for the status."""

    async def run(self, signals: Signals, report: Report) -> None:
        """Practise whenever there is room until `signals.stop` is set."""
        health = StageHealth(STAGE, report, doing=lambda: self.doing)

        async def step() -> bool:
            busy = await self.step(health.began)
            await health.healthy()
            if not busy:
                await signals.rest(LOOKS * self._looked_s)
            return busy

        back_off = BackOff(base_s=POLL_S, max_s=60.0)
        await work(step, signals=signals, health=health, poll_s=POLL_S, back_off=back_off)

    async def step(self, began: Callable[[], Awaitable[None]] | None = None) -> bool:
        """Sample and store the answers of one update, if one is due, or test the lesson first; whether either
        was done. It calls `began` once `doing` names the lesson, before it samples or scores.

        All are stored together: a crash before that leaves nothing. Raises EngineError if the engine fails.
        """
        found = await self._next()
        if isinstance(found, Test):
            return await self._test(found, began)
        if isinstance(found, str):
            self.doing = found
            return False
        adapter = found.lesson.adapter
        newest = await self._store.call(lambda store: store.newest_version(adapter))
        if self._engine.live(adapter) not in (None, newest):
            self.doing = f"waits until version {newest} is served"
            return False
        count = len(found.prompts) + len(found.along) + (found.synthetic or 0)
        self.doing = told(found.lesson, count, self._settings.updates * self._learner.batch)
        if began is not None:
            await began()
        lesson, words = found.lesson, found.words
        synthetic = list[Turn]()
        if found.synthetic is not None:
            named = found.correction.turn, words
            synthetic, written = await self._synthetic.take(found.own, found.synthetic)
            requests = *found.requests, *written
            while lesson.general is None and names_case(words, found.own, requests):
                if not (more := await self._synthetic.more(found.own)):
                    self._tried.cases.add(named)
                    return True
                requests = *requests, *more  # a word that is rare, such as "make", is none of a case
            if found.synthetic and not synthetic:
                self._tried.recorded_only.add(named)
                if not found.prompts:
                    return True
        answering = asyncio.gather(
            *(self._answer(found, prompt) for prompt in found.prompts),
            *(self._answer(found, prompt, along=True) for prompt in found.along),
            *(self._answer(found, request, synthetic=True) for request in synthetic),
        )
        sampled = await self._while_unchanged(lesson, answering)
        answers = await self._judged([each for each in sampled if each is not None], words)
        at = self._now()
        return bool(answers) and await self._store.call(
            lambda store: store.practised(lesson, words, answers, now=at)
        )

    async def _next(self) -> Round | Test | str:
        """The next round by what the store holds, a test before it, or why nothing is due."""
        now, known = self._now(), self._known if self._base_teaches else None
        began = time.monotonic()
        found = await self._store.call(
            lambda store: next_round(
                store, self._settings, self._learner, now=now, tried=self._tried, known=known
            )
        )
        self._looked_s = time.monotonic() - began
        return found

    async def _while_unchanged(
        self, lesson: Lesson, answering: asyncio.Future[list[Fresh | None]]
    ) -> list[Fresh | None]:
        """The answers; none once the lesson was dropped, edited, restricted, given again or forgotten, for
        they would not be stored."""
        try:
            while not (await asyncio.wait([answering], timeout=POLL_S))[0]:
                if not await self._store.call(lambda store: store.is_unchanged(lesson)):
                    return []
            return answering.result()
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)  # asyncio would report it as unread

    async def _answer(
        self, found: Round, prompt: Turn, *, synthetic: bool = False, along: bool = False
    ) -> Fresh | None:
        """A new turn that answers the prompt, measured; None if the prompt cannot be answered.

        The teacher does not read the lesson if the prompt goes `along`, and reads none where the answer
        recites a hint, of which it would approve, or has a call that does not parse. A prompt that was not
        corrected goes along too if the lesson is not about it, and so hardly changes the answer's log-prob.
        """
        corrected = any(prompt.id == each.turn for each in found.lesson.corrections) and not synthetic
        try:
            turn = await self._sampled(found, prompt)
        except (RequestError, RequestRefused):
            if not synthetic:
                self._tried.refused.add(prompt.id)
            return None
        earlier = found.earlier
        if recites(turn.message) or self._breaks(turn.message):
            along, earlier = True, ()
        reason = untrainable(turn)
        if reason is None and self._redaction.in_message(turn.message):
            reason = Reason.HOLDS_SECRET
        gap = None
        if reason is None:
            plain, whole = hint_of(earlier, ""), hint_of(earlier, found.words)
            asks = not (corrected or along)
            gap, added = await self._gap(turn, [plain if along else whole, *([plain] if asks else [])])
            along = along or (asks and gap is not None and added <= CLOSE)
        if gap is not None and gap <= CLOSE:
            reason = Reason.ALREADY_GOOD
        return Fresh(turn, turn.id if synthetic else prompt.id, reason, gap, along, earlier=earlier)

    async def _sampled(self, found: Round, prompt: Turn) -> Turn:
        """A new turn with an answer of the present weights. Raises RequestError or RequestRefused if the
        prompt cannot be answered."""
        now = self._now()
        sampling = replace(
            prompt.sampling,
            seed=None,
            max_tokens=min(prompt.sampling.max_tokens, self._settings.max_tokens),
            temperature=scoring_temperature(prompt.sampling.temperature),
        )
        asked, reply = await respond(
            self._engine,
            self._renderer,
            replace(prompt.conversation, lessons=""),
            sampling,
            now=prompt.created,
            adapter=prompt.adapter,
            background=True,
        )
        id = turn_id(now, self._entropy(ENTROPY_BYTES))
        return replace(
            prompt,
            id=id,
            scope=found.correction.scope,
            session=found.correction.session,
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

    async def _judged(self, answers: list[Fresh], words: str) -> list[Fresh]:
        """The answers with the rewards of their groups. One that the judge cannot tell has none."""
        if self._ask is None or self._settings.group == 1:
            return answers
        judged = [each for each in answers if not each.along and each.reason in (None, Reason.ALREADY_GOOD)]
        found = await asyncio.gather(*(self._follows(each.turn, words) for each in judged))
        rewards = {each.turn.id: reward for each, reward in zip(judged, found, strict=True) if reward}
        seen = {(each.prompt, rewards.get(each.turn.id)) for each in judged}
        differ = {each.prompt for each in judged if {(each.prompt, 1), (each.prompt, -1)} <= seen}
        return [
            each._replace(reward=rewards[each.turn.id], reason=None)
            if each.prompt in differ and each.turn.id in rewards
            else each
            for each in answers
        ]

    async def _follows(self, turn: Turn, words: str) -> int:
        """1: the judge finds that the answer follows the lesson; -1: that it does not; 0: it cannot tell."""
        assert self._ask is not None
        calls = (f"{call.name} {call.arguments}" for call in turn.message.tool_calls)
        said = "\n".join([*calls, turn.message.content or ""]).strip()
        try:
            answer = await self._ask(follow_question(words, said), seed_of(turn.id))
        except (JudgeUnavailable, JudgeRefused):
            return 0
        return evaluation_vote(answer).value or 0

    def _breaks(self, response: Message) -> bool:
        """Whether a response begins a call that does not parse: the text has its mark."""
        calls = self._renderer.convention.calls
        return any(call.begin in (response.content or "") for call in calls if call.begin)

    @property
    def _base_teaches(self) -> bool:
        """Whether the frozen base teaches, and the engine can score with it."""
        can = self._engine.capabilities
        return self._learner.teacher == "base" and can.base_weights and can.scored_ids > 0

    async def _test(self, found: Test, began: Callable[[], Awaitable[None]] | None) -> bool:
        """Score approved responses without the lesson and with it, and store whose it contradicts."""
        if found.new:
            many = counted(len(found.new), "approved answer")
            self.doing = f"tests lesson {found.lesson.number} on {many}"
            if began is not None:
                await began()
        if len(self._known) > MOST_KNOWN:
            self._known.clear()
            self._tested.clear()
        for item, turn in found.new:
            room = self._engine.facts.context_length - len(item.ids)
            hints = [each for each in found.hints if each]
            prompts, _ = await asyncio.to_thread(
                hinted_prompts, turn, hints, self._renderer, self._placement, room
            )
            test = Tested(given=False, spoiled=False)
            if len(prompts) == len(hints):
                asked = [item.prompt_ids, *(ids for _, ids in prompts)][-2:]
                rows = [Score(prompt_ids=ids, response_ids=item.ids, tau=1.0) for ids in asked]
                plain, shown = await self._engine.score(rows, top=1, weights=Weights.BASE)
                spoiled = item.contradicted(plain.logprobs, shown.logprobs)
                test = Tested(given=item.kept(plain.logprobs), spoiled=spoiled)
            self._known[found.hints, item.turn] = test
        whose = found.whose(self._known)
        with suppress(SettingError):  # forgotten meanwhile
            await self._store.call(lambda store: store.change_lesson(found.lesson.number, spoils=whose))
        result = found.lesson.number, found.hints, whose
        is_news = bool(found.new) or result not in self._tested
        self._tested.add(result)
        return is_news

    async def _gap(self, turn: Turn, hints: Sequence[str]) -> tuple[float | None, float]:
        """The answer's gap to the teacher with the first of these hints, and how far its log-prob is apart
        with the last, both in nats.

        A gap of None if the engine does not serve the teacher or cannot score as the answer was sampled: an
        update measures it.
        """
        tau = scoring_temperature(turn.sampling.temperature)
        if not self._base_teaches or not (self._engine.capabilities.scored_tau or tau == 1.0):
            return None, 0.0
        ids, room = turn.sampled.ids, self._engine.facts.context_length - len(turn.sampled.ids)
        prompts, _ = await asyncio.to_thread(
            hinted_prompts, turn, hints, self._renderer, self._placement, room
        )
        if len(prompts) < len(hints):
            return None, 0.0
        rows = [Score(prompt_ids=each, response_ids=ids, tau=tau) for _, each in prompts]
        found = await self._engine.score(rows, top=1, weights=Weights.BASE)
        first, last = (fsum(each.logprobs) for each in (found[0], found[-1]))
        gap = fsum(turn.sampled.logprobs) - first
        return (gap if isfinite(gap) else None), abs(first - last)


def told(lesson: Lesson, count: int, most: int) -> str:
    """The practised lesson in a sentence, by its number: a status outlives the session that gave it. `count`
    answers are sampled now."""
    gap, done = standing(lesson).gap, len(lesson.taught_since(lesson.newest))
    near = "" if gap is None else f", gap {gap:.2g} nats"
    samples = f"samples {counted(count, 'answer')}"
    return f"practises lesson {lesson.number}: {samples}; {done} of {most} so far{near}"


def with_lessons(watch: AfterVerdict, rule: ReviewRule) -> AfterVerdict:
    """After each verdict: `watch`, and the lesson that the turn carries now."""

    def judged(store: Store, turn: str, *, now: float) -> None:
        watch(store, turn, now=now)
        record = store.turn(turn)
        verdict, waits = record.verdict, record.state is State.JUDGED and record.opd
        elsewhere = record.reason is Reason.NOT_SAMPLED_HERE and record.turn.teaches
        of_tools = Flag.TOOL_WORDS in record.flags and not rule.tool_hints
        if (waits or elsewhere) and not of_tools and verdict is not None and verdict.hints:
            store.teach(record.turn, best_supported(verdict.hints, verdict.votes), now=now)
        else:
            store.untaught(turn)

    return judged

"""The judge stage: claim an answered turn, ask, commit the verdict."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from afterwit.binding.bind import with_assistant_summaries
from afterwit.errors import AfterwitError, EngineUnavailable, JudgeUnavailable, StoreUnavailable
from afterwit.judging.ability import Examiner
from afterwit.judging.checks import MOST_INVALID, agreement
from afterwit.judging.exam import ABLE, Ability
from afterwit.judging.polarity import UNREAD, Reading
from afterwit.judging.questions import paid, view_of
from afterwit.judging.settings import JudgeSettings
from afterwit.judging.unvoted import is_asked_again, own_words, unvoted, with_own_words
from afterwit.judging.verdicts import HintTrial, JudgeClient, Verdicts, case
from afterwit.judging.voting import CUT, Verify
from afterwit.lifecycle import Reason
from afterwit.promotion.episodes import closes
from afterwit.store import AsyncStore, Filter, Record, Store
from afterwit.tracking.traces import span
from afterwit.turn import Kind, Message, RecordedTurn, adapter_of
from afterwit.verdict import Flag, NextState, Question, Reads, Verdict, Vote, unjudged
from afterwit.vetting.doubts import Votes, blames_all, contradicts, hint_flags, previous, several, signature
from afterwit.vetting.own_words import MOST_CORRECTION, demonstration, with_given
from afterwit.vetting.redaction import Redaction
from afterwit.worker import WORKING, BackOff, Signals, StageHealth, described, frames, renewing, work

STAGE: Literal["judge"] = "judge"
GIVE_UP_AFTER = 8
"""Failed attempts after which a turn ends as `judge_failed`; `requeue` puts it back. An attempt fails if the
judge refuses the question, or by a fault of ours. A judge that does not answer never ends a turn."""
FAILURES_TOLD = 3
"""Turns in a row that must fail before the stage reports it."""
SIDE_TURNS = 16
"""Side turns of a session whose replies are looked up, the newest first."""

log = logging.getLogger(__name__)


class AfterVerdict(Protocol):
    """Further changes with a stored verdict, or with the end of a turn that has none: one transaction."""

    def __call__(self, store: Store, turn: str, *, now: float) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Time and chance."""

    now: Callable[[], float]
    """Seconds since the epoch."""
    sleep: Callable[[float], Awaitable[object]]
    random: Callable[[], float]
    """Uniform in [0, 1)."""


class Judge:
    """Judges turns one by one. Several steps may run concurrently."""

    def __init__(
        self,
        *,
        store: AsyncStore,
        client: JudgeClient,
        settings: JudgeSettings,
        reads: Reads,
        owner: str,
        clock: Clock,
        after: AfterVerdict,
        redaction: Redaction = Redaction(),
        examiner: Examiner | None = None,
        trial: HintTrial | None = None,
    ) -> None:
        """`reads`: the parts of a verdict that the objective uses. `after` is called in each verdict's
        transaction. Without an `examiner` the judge counts as able, and without a `trial` every hint as one
        that the model follows."""
        self._store, self._owner, self._clock, self._after = store, owner, clock, after
        self._settings, self._rules = settings, settings.rules(reads)
        self._redaction, self._examiner, self._trial = redaction, examiner, trial
        self._back_off = BackOff(
            base_s=settings.retry_base_s, max_s=settings.retry_max_s, random=clock.random
        )
        self._verdicts = Verdicts(client, settings, reads, back_off=self._back_off, sleep=clock.sleep)
        self._votes = RecentVotes()
        self._failed, self._failure = 0, ""

    async def run(self, signals: Signals) -> None:
        """Judge up to `max_turns` turns concurrently until `signals.stop` is set."""

        async def report(ok: bool, message: str) -> None:
            now = self._clock.now()
            await self._store.call(lambda store: store.set_status(STAGE, ok, message, now=now))

        health = StageHealth(STAGE, report, warning=self._warning, doing=self._doing)
        async with asyncio.TaskGroup() as loops:
            for _ in range(self._settings.max_turns):
                loop = work(
                    self.step,
                    signals=signals,
                    health=health,
                    poll_s=self._settings.poll_s,
                    back_off=self._back_off,
                    lasting=(JudgeUnavailable,),
                )
                loops.create_task(loop)

    def _warning(self) -> str | None:
        if self._examiner is not None and self._examiner.fault is not None:
            return self._examiner.fault
        if self._failed >= FAILURES_TOLD:
            return f"the last {self._failed} attempts to judge a turn failed: {self._failure}"
        return self._votes.warning()

    def _doing(self) -> str:
        if self._examiner is not None and self._examiner.examines:
            return "its own test is under way: turns without a hint of yours wait for it"
        return WORKING

    async def step(self) -> bool:
        """Judge the oldest answered turn; False if none waits.

        Raises if the judge or the store does not answer: the turn waits, and so do all others. Any other
        failure is the turn's own: it is tried again later, and the next one is judged at once. While the
        judge is examined, minutes on a CPU, turns with a person's hint go on: they need no vote.
        """
        owner, lease_s, examiner = self._owner, self._settings.lease_s, self._examiner
        unknown = examiner is not None and not await examiner.is_known()
        record = await self._claimed(taught=unknown)
        if record is None and examiner is not None and unknown:
            if examiner.examines:
                return False
            await examiner.ability()
            record = await self._claimed()
        if record is None:
            return False

        async def extend() -> None:
            now = self._clock.now()
            await self._store.call(
                lambda store: store.extend([record.turn.id], owner=owner, lease_s=lease_s, now=now)
            )

        try:
            async with renewing(extend, every_s=lease_s / 3, sleep=self._clock.sleep):
                await self._settle(record)
        except asyncio.CancelledError:
            await self._give_back(record)
            raise
        except (JudgeUnavailable, EngineUnavailable, StoreUnavailable) as error:
            await self._give_back(record, error=str(error))
            raise
        except Exception as error:
            why = described(error)
            log.warning("judge: turn %s: %s%s", record.turn.id, why, frames(error))
            self._failed, self._failure = self._failed + 1, why
            if record.attempts + 1 < GIVE_UP_AFTER:
                await self._give_back(record, error=why)
            else:
                await self._end(record, Reason.JUDGE_FAILED, error=why)
        else:
            self._failed = 0
        return True

    async def _claimed(self, *, taught: bool = False) -> Record | None:
        """The oldest waiting turn, or the oldest that a person `taught`."""
        owner, lease_s, now = self._owner, self._settings.lease_s, self._clock.now()
        claimed = await self._store.call(
            lambda store: store.claim(STAGE, owner=owner, limit=1, lease_s=lease_s, now=now, taught=taught)
        )
        return claimed[0] if claimed else None

    async def _settle(self, record: Record) -> None:
        session = record.turn.session
        side = await self._store.call(
            lambda store: store.turn_lines(Filter(session=session, kind=Kind.SIDE), limit=SIDE_TURNS)
        )
        if side:
            replies = [line.message for line in side]
            record = await asyncio.to_thread(_with_summaries, record, replies)
        turn, next_state = record.turn, record.next_state
        reason = unjudged(turn)
        if reason is None and await asyncio.to_thread(self._redaction.in_message, turn.message):
            reason = Reason.HOLDS_SECRET
        if reason is not None:
            await self._end(record, reason)
            return
        if next_state is None:
            raise AfterwitError(f"turn {turn.id} is {record.state} without a next state")
        began = time.time()
        verdict = with_given(await self._verdict(turn, next_state), next_state, self._rules)
        if self._settings.siblings and verdict.reward < 0 and not verdict.hints:
            good = await self._store.call(lambda store: store.good_sibling(turn.id))
            if good is not None and len(good) <= MOST_CORRECTION:
                verdict = replace(verdict, hints=(demonstration(good),))
        clean = tuple(hint for hint in verdict.hints if not self._redaction.found([hint]))
        verdict = replace(verdict, hints=clean)
        if clean and self._trial is not None and self._tells:
            verdict = await self._trial.tried(turn, verdict, self._verdicts.asked)
        await self._commit(turn, next_state, verdict)
        span("judge", turn.id, began, time.time(), reward=verdict.reward, hinted=bool(clean))

    async def _verdict(self, turn: RecordedTurn, next_state: NextState) -> Verdict:
        """By votes as far as the judge is able, else by evidence that needs none."""
        ability, words = self._ability, own_words(next_state)
        if not ability.votes:
            judged = await asyncio.to_thread(case, turn, next_state)
            reading = UNREAD if self._examiner is None else await self._read(words, turn, next_state)
            verdict = await asyncio.to_thread(unvoted, judged, next_state, reading)
            return paid(verdict, judged, self._rules)
        is_doubtful = self._settings.verify == "auto" and self._votes.doubtful
        verify = Verify.CONSISTENT if is_doubtful else None
        taught = next_state.feedback is not None and next_state.feedback.teaches
        asked = ability.hints and not taught
        verdict = await self._verdicts.of(turn, next_state, verify=verify, hints=asked)
        self._votes.add(verdict)
        if verdict.reward < 0 and not ability.hints:
            reading = Reading(value=-1, hint=True, words="the judge's votes say so")
            view = view_of(turn.conversation, turn.message, next_state)
            return await asyncio.to_thread(with_own_words, verdict, words, reading, view)
        return verdict

    async def _read(self, words: str, turn: RecordedTurn, next_state: NextState) -> Reading:
        """The reading of a person's words; without any, that of what a tool returned last."""
        assert self._examiner is not None
        if is_asked_again(words, turn.conversation):
            return Reading(value=0, hint=False, words="a request in the form of the first one")
        if words:
            return await self._examiner.read(words)
        results = [each.content or "" for each in next_state.messages if each.role == "tool"]
        return await self._examiner.read(results[-1] if results else "", of_tool=True)

    @property
    def _is_unexamined(self) -> bool:
        """Whether the examination has not ended. Hints are checked for harm even so."""
        unknown = self._examiner is not None and self._examiner.known is None
        return unknown and self._settings.prompts == "full"

    @property
    def _ability(self) -> Ability:
        """Of the judge: before its examination none, unless its votes count whatever that finds."""
        return ABLE if self._examiner is None else self._examiner.known or Ability(mode=self._settings.mode)

    @property
    def _tells(self) -> bool:
        """Whether the judge can be asked about hints. One that needs short prompts cannot tell."""
        return self._ability.votes and self._settings.prompts == "full"

    async def _commit(self, turn: RecordedTurn, next_state: NextState, verdict: Verdict) -> None:
        """Store the verdict. The turn goes on to the learner, or ends with the reason why it does not."""
        carried, now = self._rules.reads.of(turn, verdict), self._clock.now()
        kind, before = signature(turn.message), previous(turn.conversation.messages)
        flags = await asyncio.to_thread(
            lambda: hint_flags(verdict.hints, view_of(turn.conversation, turn.message, next_state))
        )
        if (
            verdict.hints
            and (carried.opd or (carried.reason is Reason.NOT_SAMPLED_HERE and turn.teaches))
            and not set(flags) - {Flag.TOOL_WORDS}
            and await self._harmful(turn, verdict.hints)
        ):
            flags = (*flags, Flag.HARMFUL)

        def doubts(store: Store) -> tuple[Flag, ...]:
            return _reward_flags(store, turn, next_state, verdict.reward, hinted=bool(verdict.hints))

        def judged(store: Store) -> None:
            with store.transaction():
                if store.judged(
                    turn.id,
                    verdict,
                    rl=carried.rl,
                    opd=carried.opd,
                    reason=carried.reason,
                    owner=self._owner,
                    now=now,
                    flags=(*flags, *doubts(store)),
                    signature=kind,
                    previous=before,
                ):
                    self._after(store, turn.id, now=now)

        await self._store.call(judged)

    async def _harmful(self, turn: RecordedTurn, hints: tuple[str, ...]) -> bool:
        """Whether the judge finds the hints harmful. False as soon as its examination finds that it cannot
        tell: a small model may write until `judge.max_tokens`."""
        if self._examiner is None or not self._is_unexamined:
            return self._tells and await self._verdicts.harmful(turn.id, hints)
        asked = asyncio.create_task(self._verdicts.harmful(turn.id, hints))
        examined = asyncio.create_task(self._examiner.told())
        try:
            await asyncio.wait({asked, examined}, return_when=asyncio.FIRST_COMPLETED)
            return (asked.done() or self._tells) and await asked
        finally:
            asked.cancel()
            examined.cancel()

    async def _end(self, record: Record, reason: Reason, *, error: str | None = None) -> None:
        turn, now = record.turn.id, self._clock.now()

        def ended(store: Store) -> None:
            with store.transaction():
                if store.skip([turn], reason, owner=self._owner, error=error, now=now):
                    self._after(store, turn, now=now)

        await self._store.call(ended)

    async def _give_back(self, record: Record, *, error: str | None = None) -> None:
        """Back to waiting; after each failed attempt for longer."""
        wait = 0.0 if error is None else self._back_off.after(record.attempts + 1)
        turn, now = record.turn.id, self._clock.now()
        await self._store.call(
            lambda store: store.release([turn], owner=self._owner, retry_in_s=wait, error=error, now=now)
        )


def _with_summaries(record: Record, replies: Sequence[Message]) -> Record:
    """The turn with its next state, where a message that quotes a reply of a side turn is the assistant's."""
    conversation, next_state = record.turn.conversation, record.next_state
    conversation = replace(conversation, messages=with_assistant_summaries(conversation.messages, replies))
    if next_state is not None:
        next_state = replace(next_state, messages=with_assistant_summaries(next_state.messages, replies))
    return replace(record, turn=replace(record.turn, conversation=conversation), next_state=next_state)


def _reward_flags(
    store: Store, turn: RecordedTurn, next_state: NextState, reward: int, *, hinted: bool
) -> tuple[Flag, ...]:
    """Whether the reward contradicts other sources that teach the same adapter. Call it in the verdict's
    transaction.

    If a call failed and no person spoke, the turn waits, but does not count against its source.
    """
    kind, source, spoken = signature(turn.message), turn.source, closes(next_state)
    if reward == 0:
        return ()
    if kind is None and reward < 0:
        blames = spoken and not hinted and blames_all(store.votes_on_text(adapter_of(turn)), source=source)
        return (Flag.CONTRADICTS,) if blames else ()
    said: Mapping[str, Votes] = {}
    if kind is not None and (spoken or reward < 0):
        # votes on such calls after the same earlier call, if several others gave any; else on all such calls
        adapter = adapter_of(turn)
        said = store.votes_on(kind, after=previous(turn.conversation.messages), adapter=adapter)
        if not several(said, source=source):
            said = store.votes_on(kind, adapter=adapter)
    earlier = store.contradictions(source) if reward > 0 else 0
    if not contradicts(reward, source=source, said=said, earlier=earlier, spoken=spoken):
        return ()
    return (Flag.CONTRADICTS if spoken or reward > 0 else Flag.TOOLS_CONTRADICT,)


REMEMBERED = 60
"""Votes: ten turns of two questions with three answers each. As many turns' votes on rewards are compared."""
FEWEST = 12
"""Votes, or turns, needed before a share counts."""


class RecentVotes:
    """The last votes of one judge stage."""

    def __init__(self) -> None:
        self._votes: deque[Vote] = deque(maxlen=REMEMBERED)
        self._rewards: deque[list[int]] = deque(maxlen=REMEMBERED)

    def add(self, verdict: Verdict) -> None:
        asked = [vote for vote in verdict.votes if vote.question is Question.EVALUATION]
        self._votes.extend(verdict.votes)
        self._rewards.append([vote.value for vote in asked if vote.value is not None])

    @property
    def doubtful(self) -> bool:
        """Whether votes on one turn differ as if too many answers were wrong."""
        return agreement(self._rewards).is_doubtful(FEWEST)

    def warning(self) -> str | None:
        """The fault; None while most votes can be read."""
        seen, invalid = len(self._votes), sum(vote.value is None for vote in self._votes)
        if seen < FEWEST or invalid <= MOST_INVALID * seen:
            return None
        is_cut = 2 * sum(vote.rejected == CUT for vote in self._votes) > invalid
        remedy = "raise judge.max_tokens" if is_cut else "set judge.url to a stronger model"
        return (
            f"more than half of the judge's last votes {'were cut' if is_cut else 'cannot be read'}, so turns"
            f" end as invalid_votes: {remedy}"
        )

"""The verdict of a turn: all questions are asked concurrently, and the answers counted; then its hints are
tried, because nothing can be distilled from one that the model ignores."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Protocol

from afterwit.chat_format.tool_schema import schema_error
from afterwit.errors import JudgeRefused, JudgeUnavailable, QuestionTooLong, SettingError
from afterwit.judging.hinted_prompts import splice
from afterwit.judging.prompts import follow_question, halved, harm_question
from afterwit.judging.questions import (
    JudgeCall,
    JudgeCase,
    call_seed,
    case_of,
    conclude,
    questions,
    seed_of,
)
from afterwit.judging.settings import JudgeSettings, judge_prompts
from afterwit.judging.unvoted import without_answered_calls
from afterwit.judging.voting import Answer, Verify, evaluation_vote, harm_found
from afterwit.turn import Message, RecordedTurn, Turn
from afterwit.verdict import NextState, Question, Reads, Verdict, Vote
from afterwit.worker import BackOff, retrying

if TYPE_CHECKING:
    from afterwit.judging.engine_judge import EngineJudge

KEPT_TURNS = 256
"""Most waiting turns whose answers so far stay in memory. The judge answers again for others."""

MOST_TOKENS = 512
"""Of a trial's answer; and at most twice the tokens of the turn's response."""
LEAST_TOKENS = 64

Ask = Callable[[tuple[Message, ...], int], Awaitable[Answer]]
"""Asks the judge a question with a seed. Raises JudgeUnavailable or JudgeRefused."""


class JudgeClient(Protocol):
    """Asks the judge once."""

    async def ask(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int
    ) -> Answer:
        """The answer. Raises JudgeUnavailable (it may answer later) or JudgeRefused (it never will)."""


class InTime:
    """A package's judge whose answers come within a limit or count as those of a judge that is away.

    Raises SettingError for an answer that is none.
    """

    def __init__(self, client: JudgeClient, within_s: float) -> None:
        self._client, self._within_s = client, within_s

    def __getattr__(self, name: str) -> object:
        return getattr(self._client, name)

    async def ask(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int
    ) -> Answer:
        asked: object = self._client.ask(messages, temperature=temperature, max_tokens=max_tokens, seed=seed)
        if not isawaitable(asked):
            raise SettingError("ask() of the judge must be an async function")
        try:
            async with asyncio.timeout(self._within_s):
                answer: object = await asked
        except TimeoutError as error:
            why = f"the judge did not answer within judge.timeout_s, {self._within_s:g} seconds"
            raise JudgeUnavailable(why) from error
        if not (isinstance(answer, Answer) and isinstance(answer.words, str)):
            kind = type(answer.words if isinstance(answer, Answer) else answer).__name__
            raise SettingError(f"ask() of the judge returned {kind}, but must return an Answer of words")
        return answer


def is_examined(client: JudgeClient) -> bool:
    """Whether its votes count only once it has judged known exchanges; a package may give it `examined`."""
    return getattr(client, "examined", True)


class Verdicts:
    """Makes verdicts, several concurrently. `max_concurrency` bounds their calls together."""

    def __init__(
        self,
        client: JudgeClient,
        settings: JudgeSettings,
        reads: Reads,
        *,
        back_off: BackOff,
        sleep: Callable[[float], Awaitable[object]],
    ) -> None:
        """`reads`: the parts of a verdict that are used."""
        self._client, self._settings = client, settings
        self._prompts, self._rules = judge_prompts(settings), settings.rules(reads)
        self._back_off, self._sleep = back_off, sleep
        self._room = asyncio.Semaphore(settings.max_concurrency)
        self._kept: dict[str, dict[JudgeCall, Answer]] = {}

    async def of(
        self,
        turn: RecordedTurn,
        next_state: NextState,
        *,
        verify: Verify | None = None,
        hints: bool = True,
    ) -> Verdict:
        """The verdict. `verify` replaces the rules' own; without `hints` none are asked for.

        A question that does not fit the judge's context is retried with half of each text. Raises
        JudgeUnavailable or JudgeRefused. Answers that came are kept for the next attempt.
        """
        reads = self._rules.reads if hints else replace(self._rules.reads, opd=False)
        rules = replace(self._rules, reads=reads, verify=verify or self._rules.verify)

        # in threads: a next state may be a megabyte of tool output, and the streams go on meanwhile
        judged = await asyncio.to_thread(case, turn, next_state)
        prompts = self._prompts
        while True:
            calls = await asyncio.to_thread(questions, judged, prompts, rules)
            try:
                answers = await self._ask(turn.id, calls)
                break
            except QuestionTooLong:
                shorter = halved(prompts)  # texts without spaces have several times the tokens
                if shorter is None:
                    raise
                prompts = shorter
        return await asyncio.to_thread(conclude, judged, [(call, answers[call]) for call in calls], rules)

    async def harmful(self, turn: str, hints: tuple[str, ...]) -> bool:
        """Whether the judge finds that to follow these hints is harmful, or will not read them, as one with a
        filter of its own. False if it cannot answer now."""
        try:
            answer = await self.asked(harm_question(hints), seed_of(turn))
        except (JudgeUnavailable, QuestionTooLong):
            return False
        except JudgeRefused:
            return True
        return harm_found(answer)

    async def asked(self, messages: tuple[Message, ...], seed: int) -> Answer:
        """The judge's answer to a question. Raises JudgeUnavailable or JudgeRefused."""
        async with self._room:
            return await self._client.ask(
                messages,
                temperature=self._settings.temperature,
                max_tokens=self._prompts.max_tokens,
                seed=seed,
            )

    async def _ask(self, turn: str, calls: Sequence[JudgeCall]) -> dict[JudgeCall, Answer]:
        """Every call's answer. If some fail, the others' are kept, and only the failed are asked again."""

        def answer(call: JudgeCall) -> Awaitable[Answer]:
            once = partial(self.asked, call.messages, call_seed(turn, call))
            attempts = self._settings.attempts
            return retrying(once, attempts=attempts, back_off=self._back_off, sleep=self._sleep)

        kept = self._kept.pop(turn, {})
        missing = [call for call in calls if call not in kept]
        results = await asyncio.gather(*map(answer, missing), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        kept |= {
            call: result for call, result in zip(missing, results, strict=True) if isinstance(result, Answer)
        }
        if failures:
            self._kept[turn] = kept
            while len(self._kept) > KEPT_TURNS:
                del self._kept[next(iter(self._kept))]
            raise failures[0]
        return kept


def case(turn: RecordedTurn, next_state: NextState) -> JudgeCase:
    """The case of a turn. May take a while: its schema is checked."""
    unanswered = without_answered_calls(turn.message, next_state.messages)
    return case_of(turn, next_state, schema_error=schema_error(unanswered, turn.conversation.tools))


class HintTrial:
    """Shows the model each hint of a verdict and lets the judge say whether its answer follows it."""

    def __init__(self, model: EngineJudge, settings: JudgeSettings) -> None:
        """`model` answers as the teacher: with the frozen weights if the engine has them."""
        self._model, self._settings = model, settings

    async def tried(self, turn: RecordedTurn, verdict: Verdict, ask: Ask) -> Verdict:
        """The verdict without the hints that no answer followed, and with a vote for each hint.

        A hint stays if this cannot be found out now.
        """
        if not isinstance(turn, Turn):
            return verdict
        votes = [await self._vote(turn, hint, ask) for hint in verdict.hints]
        kept = tuple(vote.hint for vote in votes if vote.hint is not None)
        return replace(verdict, hints=kept, votes=(*verdict.votes, *votes))

    async def _vote(self, turn: Turn, hint: str, ask: Ask) -> Vote:
        """Try until an answer follows the hint, or none of all tries did. The vote holds the last answer."""
        vote = Vote(question=Question.FOLLOWS, words="", value=0, hint=hint)
        length = max(LEAST_TOKENS, min(MOST_TOKENS, 2 * len(turn.sampled.ids)))
        for at in range(self._settings.follow_tries):
            seed = seed_of(f"{turn.id}/{hint}/{at}")
            hinted = splice(turn.conversation, hint, self._settings.placement)
            try:
                given = await self._model.answer(
                    hinted, temperature=turn.sampling.temperature, max_tokens=length, seed=seed
                )
                found = evaluation_vote(await ask(follow_question(hint, given.words), seed))
            except (JudgeUnavailable, JudgeRefused):
                return vote
            vote = replace(vote, words=given.words, value=found.value or 0)
            if vote.value != -1:
                return vote
        return replace(vote, hint=None, rejected=f"shown it, the model does not do it: {hint}")

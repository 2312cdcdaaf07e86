"""Whether the model follows a hint that it is shown: nothing can be distilled from one that it ignores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from afterwit.errors import JudgeRefused, JudgeUnavailable
from afterwit.judging.engine_judge import EngineJudge
from afterwit.judging.hinted_prompts import splice
from afterwit.judging.prompts import follow_question
from afterwit.judging.questions import seed_of
from afterwit.judging.settings import JudgeSettings
from afterwit.judging.voting import Answer, evaluation_vote
from afterwit.turn import Message, RecordedTurn, Turn
from afterwit.verdict import Question, Verdict, Vote

MOST_TOKENS = 512
"""Of a trial's answer; and at most twice the tokens of the turn's response."""
LEAST_TOKENS = 64

Ask = Callable[[tuple[Message, ...], int], Awaitable[Answer]]
"""Asks the judge a question with a seed. Raises JudgeUnavailable or JudgeRefused."""


class Trial:
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

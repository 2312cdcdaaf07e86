"""The judge's view of a turn, its questions, and the verdict from its answers. Pure.

The judge stage and a recorded rollout take the same steps: `case_of`, `questions`, ask the judge, `conclude`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from afterwit.binding.client_text import without_client_text
from afterwit.judging.voting import Answer, Decided, VoteRules, evaluation_vote, hint_vote, tally
from afterwit.message import Conversation, Message
from afterwit.turn import RecordedTurn
from afterwit.verdict import Feedback, NextState, Question, Source, Verdict, Vote


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeView:
    """The judge's view of a turn, uncut. The prompts cut it to size and mark each cut."""

    request: str
    """The last thing a person asked before the response; empty if there is none."""
    context: tuple[Message, ...]
    """Every other message of the prompt, oldest first."""
    tools: tuple[Mapping[str, Any], ...]
    response: Message
    next_state: tuple[Message, ...]
    """Tool results and replies, without what the client added under a person's name."""


class JudgePrompts(Protocol):
    """How the two questions are worded."""

    @property
    def max_tokens(self) -> int:
        """Room for one answer, its thinking included."""

    def evaluation(self, view: JudgeView) -> tuple[Message, ...]:
        """How good was the response, as the next state shows it?"""

    def hint(self, view: JudgeView) -> tuple[Message, ...]:
        """What should the response have done differently?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeCall:
    """One call of the judge."""

    question: Question
    index: int
    """The index among the m answers to this question."""
    messages: tuple[Message, ...]
    max_tokens: int


def view_of(conversation: Conversation, response: Message, next_state: NextState) -> JudgeView:
    """The judge's view of a turn. Feedback in words is the last message of the next state."""
    asked, context = _request_and_context(conversation.messages)
    return JudgeView(
        request=asked,
        context=context,
        tools=conversation.tools,
        response=response,
        next_state=(*reactions(next_state.messages), *_spoken(next_state.feedback)),
    )


def reactions(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages of tools and people, without the client's text; messages of that alone are left out."""
    kept = (_cleaned(message) for message in messages if message.role in ("user", "tool"))
    return tuple(message for message in kept if message.content or message.role == "tool")


def _cleaned(message: Message) -> Message:
    content = without_client_text(message.content or "")
    return Message(role=message.role, content=content, tool_call_id=message.tool_call_id, name=message.name)


_THUMBS = {1: "[explicit feedback: good]", 0: "[explicit feedback: neutral]", -1: "[explicit feedback: bad]"}


def _spoken(feedback: Feedback | None) -> tuple[Message, ...]:
    if feedback is None:
        return ()
    words = feedback.text or _THUMBS[feedback.reward or 0]
    return (Message(role="user", content=words),)


def _request_and_context(messages: Sequence[Message]) -> tuple[str, tuple[Message, ...]]:
    """The last user message that a person wrote, and all the others."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].role == "user" and (said := _cleaned(messages[at]).content):
            return said, (*messages[:at], *messages[at + 1 :])
    return "", tuple(messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeCase:
    """A turn before the judge: what it is shown, and the reward if it is decided without votes."""

    view: JudgeView
    decided: Decided | None
    repeats: bool = False
    """The response repeats a tool call of its conversation, word for word."""
    blind: JudgeView | None = None
    """The view without the feedback that decided, to check the judge by it; None: nothing else followed."""


def case_of(turn: RecordedTurn, next_state: NextState, *, schema_error: str | None) -> JudgeCase:
    """The case of a turn. `schema_error`: what is wrong with its tool call; None: nothing."""
    return JudgeCase(
        view=view_of(turn.conversation, turn.message, next_state),
        decided=decided(next_state.feedback, schema_error),
        repeats=repeats_a_call(turn.conversation.messages, turn.message),
        blind=_blind(turn, next_state),
    )


def _blind(turn: RecordedTurn, next_state: NextState) -> JudgeView | None:
    """The view without feedback; None unless feedback gives a reward and something else followed."""
    feedback = next_state.feedback
    if feedback is None or feedback.reward is None or not reactions(next_state.messages):
        return None
    return view_of(turn.conversation, turn.message, replace(next_state, feedback=None))


def decided(feedback: Feedback | None, schema_error: str | None) -> Decided | None:
    """The reward if it needs no vote: explicit feedback's, else -1 for a call that its schema refuses."""
    if feedback is not None and feedback.reward is not None:
        return Decided(reward=feedback.reward, source=Source.FEEDBACK)
    if schema_error is not None:
        return Decided(reward=-1, source=Source.SCHEMA)
    return None


def questions(case: JudgeCase, prompts: JudgePrompts, rules: VoteRules) -> tuple[JudgeCall, ...]:
    """m calls for each question whose answer the objective reads.

    A decided reward needs no evaluation, and an empty next state no call at all. If feedback decided the
    reward, one more call gets the judge's own vote, to check the judge.
    """
    if not case.view.next_state:
        return ()
    asked: dict[Question, tuple[Message, ...]] = {}
    if rules.reads.reward and case.decided is None:
        asked[Question.EVALUATION] = prompts.evaluation(case.view)
    if rules.reads.opd and rules.hints:
        asked[Question.HINT] = prompts.hint(case.view)
    calls = tuple(
        JudgeCall(question=question, index=index, messages=messages, max_tokens=prompts.max_tokens)
        for question, messages in asked.items()
        for index in range(rules.votes)
    )
    if case.blind is None or not (rules.calibrate and rules.reads.reward):
        return calls
    messages, room = prompts.evaluation(case.blind), prompts.max_tokens
    return (*calls, JudgeCall(question=Question.BLIND, index=0, messages=messages, max_tokens=room))


def conclude(case: JudgeCase, answers: Sequence[tuple[JudgeCall, Answer]], rules: VoteRules) -> Verdict:
    """The verdict of all answers, in the order of the calls. Votes pay for no repeated call."""
    votes = tuple(_read(call, answer, case.view, rules) for call, answer in answers)
    return paid(tally(votes, rules, case.decided), case, rules)


def paid(verdict: Verdict, case: JudgeCase, rules: VoteRules) -> Verdict:
    """The verdict; of a repeated call without a reward that no evidence decided, unless the rules pay it."""
    unpaid = case.repeats and verdict.reward > 0 and verdict.source in (Source.VOTES, Source.READ)
    return replace(verdict, reward=0, source=Source.REPEAT) if unpaid and not rules.pay_repeats else verdict


def _read(call: JudgeCall, answer: Answer, view: JudgeView, rules: VoteRules) -> Vote:
    if call.question is not Question.HINT:
        return evaluation_vote(answer, call.question)
    said = tuple(message.content or "" for message in view.next_state)
    return hint_vote(answer, said, quote_words=rules.quote_words)


def call_seed(turn: str, call: JudgeCall) -> int:
    """The sampling seed of a call, the same whenever it is repeated. In [0, 2**31)."""
    named = f"{turn}/{call.question}/{call.index}".encode()
    return int.from_bytes(hashlib.sha256(named).digest()[:4], "big") >> 1


def repeats_a_call(earlier: Iterable[Message], response: Message) -> bool:
    """Whether any call of the response, name and arguments, is in an earlier message."""
    made = {(call.name, call.arguments) for call in response.tool_calls}
    if not made:
        return False
    return any((call.name, call.arguments) in made for message in earlier for call in message.tool_calls)

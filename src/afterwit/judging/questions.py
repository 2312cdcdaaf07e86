"""The judge's view of a turn, its questions, and the verdict from its answers. Pure.

The judge stage and a recorded rollout take the same steps: `case_of`, `questions`, ask the judge, `conclude`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from afterwit.binding.client_text import without_client_text
from afterwit.judging.voting import Answer, Decided, VoteRules, evaluation_vote, hint_vote, tally
from afterwit.turn import Conversation, Message, RecordedTurn
from afterwit.verdict import NextState, Question, Source, Verdict


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

    def messages(self, question: Question, view: JudgeView) -> tuple[Message, ...]:
        """HINT: what should the response have done differently? Others: how good was it, as the next state
        shows it?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeCall:
    """One call of the judge."""

    question: Question
    index: int
    messages: tuple[Message, ...]


_THUMBS = {1: "[explicit feedback: good]", 0: "[explicit feedback: neutral]", -1: "[explicit feedback: bad]"}


def view_of(conversation: Conversation, response: Message, next_state: NextState) -> JudgeView:
    """The judge's view of a turn. Feedback in words is the last message of the next state."""
    messages, feedback = conversation.messages, next_state.feedback
    following = reactions(next_state.messages)
    if feedback is not None:
        words = feedback.words or _THUMBS[feedback.reward or 0]
        following = (*following, Message(role="user", content=words))
    at, request = len(messages), ""
    for place, message in reversed(list(enumerate(messages))):
        if message.role == "user" and (request := _cleaned(message).content or ""):
            at = place
            break
    return JudgeView(
        request=request,
        context=(*messages[:at], *messages[at + 1 :]),
        tools=conversation.tools,
        response=response,
        next_state=following,
    )


def reactions(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages of tools and people; a message of the client alone is left out."""
    kept = (_cleaned(message) for message in messages if message.role in ("user", "tool"))
    return tuple(message for message in kept if message.content or message.role == "tool")


def _cleaned(message: Message) -> Message:
    """A tool's result stays whole: a model that prints a client's marks could hide a failure in them."""
    content = message.content or ""
    if message.role == "user":
        content = without_client_text(content)
    return Message(role=message.role, content=content, tool_call_id=message.tool_call_id, name=message.name)


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
    """The case of a turn. `schema_error`: what is wrong with its tool call; None: nothing.

    The reward needs no vote if explicit feedback gives one, or else if the schema refuses the call: -1.
    """
    conversation, response, feedback = turn.conversation, turn.message, next_state.feedback
    made = {(call.name, call.arguments) for call in response.tool_calls}
    decided, blind = None, None
    if feedback is not None and feedback.reward is not None:
        decided = (feedback.reward, Source.FEEDBACK)
        if reactions(next_state.messages):
            blind = view_of(conversation, response, replace(next_state, feedback=None))
    elif schema_error is not None:
        decided = (-1, Source.SCHEMA)
    return JudgeCase(
        view=view_of(conversation, response, next_state),
        decided=decided,
        repeats=any(
            (call.name, call.arguments) in made
            for message in conversation.messages
            for call in message.tool_calls
        ),
        blind=blind,
    )


def questions(case: JudgeCase, prompts: JudgePrompts, rules: VoteRules) -> tuple[JudgeCall, ...]:
    """m calls for each question whose answer the objective reads.

    A decided reward needs no evaluation, and an empty next state no call at all. If feedback decided the
    reward, one more call gets the judge's own vote, to check the judge.
    """
    if not case.view.next_state:
        return ()
    asked: list[tuple[Question, JudgeView, int]] = []
    if rules.reads.reward and case.decided is None:
        asked.append((Question.EVALUATION, case.view, rules.votes))
    if rules.reads.opd:
        asked.append((Question.HINT, case.view, rules.votes))
    if rules.reads.reward and rules.calibrate and case.blind is not None:
        asked.append((Question.BLIND, case.blind, 1))
    return tuple(
        JudgeCall(question=question, index=index, messages=messages)
        for question, view, times in asked
        for messages in [prompts.messages(question, view)]
        for index in range(times)
    )


def conclude(case: JudgeCase, answers: Sequence[tuple[JudgeCall, Answer]], rules: VoteRules) -> Verdict:
    """The verdict of all answers, in the order of the calls. Votes pay for no repeated call."""
    said = [message.content or "" for message in case.view.next_state]
    votes = [
        hint_vote(answer, said, quote_words=rules.quote_words)
        if call.question is Question.HINT
        else evaluation_vote(answer, call.question)
        for call, answer in answers
    ]
    return paid(tally(votes, rules, case.decided), case, rules)


def paid(verdict: Verdict, case: JudgeCase, rules: VoteRules) -> Verdict:
    """The verdict; of a repeated call without a reward that no evidence decided, unless the rules pay it."""
    unpaid = case.repeats and verdict.reward > 0 and verdict.source in (Source.VOTES, Source.READ)
    return replace(verdict, reward=0, source=Source.REPEAT) if unpaid and not rules.pay_repeats else verdict


def call_seed(turn: str, call: JudgeCall) -> int:
    """The sampling seed of a call, the same whenever it is repeated. In [0, 2**31)."""
    return seed_of(f"{turn}/{call.question}/{call.index}")


def seed_of(name: str) -> int:
    """A sampling seed, the same for the same name. In [0, 2**31)."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") >> 1

"""The next state of a turn, the judge's votes on it, and the verdict with its hints."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from afterwit.message import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """Explicit feedback on a turn: a reward, words, or both."""

    reward: int | None = None
    """+1 (thumb up, success), -1 (thumb down, failure), None if there are only words."""
    text: str | None = None

    def __post_init__(self) -> None:
        if self.reward not in (None, -1, 0, 1):
            raise ValueError(f"a reward is -1, 0 or 1, not {self.reward}")
        if self.reward is None and not self.text:
            raise ValueError("feedback needs a reward or a text")


@dataclass(frozen=True, slots=True, kw_only=True)
class NextState:
    """Everything that followed the response: every tool result, then the reply; and explicit feedback."""

    messages: tuple[Message, ...] = ()
    feedback: Feedback | None = None

    def __post_init__(self) -> None:
        if not self.messages and self.feedback is None:
            raise ValueError("a next state needs a message or feedback")


class Question(StrEnum):
    """The judge's two questions, one that checks the judge, and one that needs none."""

    EVALUATION = "evaluation"
    HINT = "hint"
    BLIND = "blind"
    """How good was the response? Asked without the feedback that decides the reward: it decides nothing."""
    OWN_WORDS = "own_words"
    """Not asked of a judge: how the person's own words were read, which may be the hint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One answer of the judge, as it was given and as it was read."""

    question: Question
    words: str
    """The judge's answer, whole."""
    value: int | None
    """The boxed number; None: an invalid vote."""
    hint: str | None = None
    """The hint's text if this is a valid +1 vote on the hint question."""
    rejected: str | None = None
    """Why an answer that parsed is not a valid vote."""


class Source(StrEnum):
    """The evidence that decided the reward."""

    VOTES = "votes"
    FEEDBACK = "feedback"
    SCHEMA = "schema"
    """A tool call that its own tool's schema refuses."""
    READ = "read"
    """The person's reply, read off a model's log-probs because the judge writes no votes."""
    TOOL = "tool"
    """A tool's result that is marked as an error."""
    REPEAT = "repeat"
    """The votes are +1, but a tool call repeats an earlier one: 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The tally: a reward in {-1, 0, 1} and the hint candidates, shortest first."""

    reward: int
    source: Source
    hints: tuple[str, ...] = ()
    votes: tuple[Vote, ...] = ()

    def __post_init__(self) -> None:
        if self.reward not in (-1, 0, 1):
            raise ValueError(f"a reward is -1, 0 or 1, not {self.reward}")

    @property
    def undivided(self) -> bool:
        """Whether all valid votes on the reward are equal; also if something else decided it."""
        rewards = {vote.value for vote in self.votes if vote.question is Question.EVALUATION}
        return len(rewards - {None}) < 2

    @property
    def own_words(self) -> bool:
        """Whether the hint is what the person wrote."""
        return any(vote.question is Question.OWN_WORDS and vote.hint in self.hints for vote in self.votes)

    @property
    def unread(self) -> bool:
        """Whether a question was asked and every vote on it is invalid."""
        asked = [vote for vote in self.votes if vote.question in (Question.EVALUATION, Question.HINT)]
        read = {vote.question for vote in asked if vote.value is not None}
        return {vote.question for vote in asked} != read


class Flag(StrEnum):
    """Why a person may want to look at a turn before it trains: the value, as stored, and `words`."""

    words: str

    def __new__(cls, value: str, words: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_, member.words = value, words
        return member

    TOOL_WORDS = "tool_words", "the hint comes from what tools returned; no person spoke"
    LINK = "link", "the hint names an address that no person named"
    COMMAND = "command", "the hint holds a command that no person named"
    STANDING_ORDER = "standing_order", "the hint orders something for other conversations or people"
    HARMFUL = "harmful", "the judge finds that to follow the hint is harmful: secrets, advertising, less care"
    UNRELATED = "unrelated", "the hint names something that nothing in the conversation names"
    TOOLS_CONTRADICT = "tools_contradict", "a call failed of a kind that several other sources approved"
    CONTRADICTS = (
        "contradicts",
        "it is against what several other sources said, or its source has been before",
    )

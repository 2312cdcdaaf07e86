"""Three exchanges with known answers, which show whether a judge can judge at all. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from afterwit.judging.polarity import Borders
from afterwit.judging.questions import JudgeView
from afterwit.judging.voting import Answer, evaluation_vote, hint_vote
from afterwit.text import outside_thoughts
from afterwit.turn import Message
from afterwit.verdict import Question

TRIES = 2
"""Answers to a case of which one must be right."""
QUOTE_WORDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The result of one case."""

    case: str
    read: bool
    """A vote could be read from an answer."""
    right: bool
    cut_thought: bool = False
    """It was still thinking when its tokens ran out."""
    refused: str | None = None
    """Why the judge refused the question."""


@dataclass(frozen=True, slots=True)
class Case:
    """An exchange and the vote that it deserves."""

    name: str
    question: Question
    request: str
    response: str
    reply: str
    right: int

    @property
    def view(self) -> JudgeView:
        return JudgeView(
            request=self.request,
            context=(),
            tools=(),
            response=Message(role="assistant", content=self.response),
            next_state=(Message(role="user", content=self.reply),),
        )

    def marked(self, answer: Answer) -> Mark:
        """The mark of an answer."""
        if self.question is Question.HINT:
            vote = hint_vote(answer, [self.reply], quote_words=QUOTE_WORDS)
        else:
            vote = evaluation_vote(answer)
        return Mark(
            case=self.name,
            read=vote.value is not None,
            right=vote.value == self.right,
            cut_thought=not answer.finished and not outside_thoughts(answer.words).strip(),
        )


EXAM = (
    Case(
        "thanks",
        Question.EVALUATION,
        "What is the capital of Peru?",
        "The capital of Peru is Lima.",
        "Thanks, that is what I wanted to know.",
        1,
    ),
    Case(
        "complaint",
        Question.EVALUATION,
        "What is two plus two? Answer with the number alone.",
        "5",
        "No, that is wrong. It is 4.",
        -1,
    ),
    Case(
        "correction",
        Question.HINT,
        "Which planet is the largest?",
        "Great question! There are eight planets in the solar system, and they differ a lot in size. The"
        " largest of them all, by far, is the gas giant Jupiter, the fifth planet from the sun.",
        "Too long. One word would do, please keep to that.",
        1,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """A judge's abilities, and how replies are read without votes."""

    marks: tuple[Mark, ...]
    borders: Borders | None = None
    """How the served model's log-probs on replies are read; None: they were not measured."""

    @property
    def votes(self) -> bool:
        """Whether its votes on rewards count."""
        return all(mark.right for mark in self.marks if mark.case != "correction")

    @property
    def hints(self) -> bool:
        """Whether it writes hints."""
        return all(mark.right for mark in self.marks)

    def fault(self, judge: str) -> str | None:
        """The fault and its remedy, in sentences that begin with the judge; None if there is none."""
        if self.votes:
            return None
        refused = next((mark.refused for mark in self.marks if mark.refused), None)
        read, of = sum(mark.read for mark in self.marks), len(self.marks)
        remedy = "Set judge.url to a stronger model, as docs/judging.md shows"
        if refused is not None:
            why, remedy = refused, "See that judge.model and judge.body_omit fit that endpoint"
        elif 2 * sum(mark.cut_thought for mark in self.marks) >= of:
            why = "it was still thinking when its tokens ran out"
            remedy = "Raise judge.max_tokens, or switch its thinking off"
        elif 2 * read < of:
            why = f"{read} of {of} probe answers carried a readable vote"
        else:
            why = f"{sum(mark.right for mark in self.marks)} of {of} probes were judged right"
        is_reading = self.borders is not None and self.borders.complaint.holds
        words = "your corrections in your own words" if is_reading else "what you write after a response"
        return (
            f"{judge} cannot judge: {why}. {remedy}. Meanwhile thumbs, failed tool calls and {words} teach."
        )


ABLE = Ability(marks=tuple(Mark(case=case.name, read=True, right=True) for case in EXAM))
"""Of a judge that is not examined."""


def better(first: Sequence[Mark], second: Sequence[Mark]) -> tuple[Mark, ...]:
    """Of two tries at the same cases, the better mark of each."""
    pairs = zip(first, second, strict=True)
    return tuple(max(pair, key=lambda mark: (mark.right, mark.read)) for pair in pairs)

"""Three exchanges with known answers, which show whether a judge can judge at all. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from afterwit.judging.polarity import COMPLAINT, NEUTRAL, REPLIES, THANKS, Borders
from afterwit.judging.questions import JudgeView
from afterwit.judging.voting import Answer, evaluation_vote, hint_vote, outside_thoughts
from afterwit.turn import Message
from afterwit.verdict import Question

TRIES = 2
"""Answers to a case of which one must be right."""
QUOTE_WORDS = 8
SAMPLED = 8
"""Shipped replies of each kind on which a judge that passes votes once."""
Mode = Literal["auto", "write", "read"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The result of one case."""

    case: str
    read: bool
    right: bool
    cut_thought: bool = False
    """It was still thinking when its tokens ran out."""
    refused: str | None = None


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
            right=vote.value == self.right or (self.name == NEUTRAL and vote.value == 0),
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


def sample() -> tuple[Case, ...]:
    """Shipped replies of each kind as cases. A conversation that moves on shows progress, or nothing."""
    request, response, _ = REPLIES.asks[0].messages
    return tuple(
        Case(kind, Question.EVALUATION, request, response, said, -1 if kind == COMPLAINT else 1)
        for kind in (COMPLAINT, THANKS, NEUTRAL)
        for said in REPLIES.texts[kind][:: len(REPLIES.texts[kind]) // SAMPLED][:SAMPLED]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """A judge's abilities: what it writes, and what is read off its log-probs."""

    mode: Mode = "auto"
    marks: tuple[Mark, ...] = ()
    """None if it is only to be read."""
    right: int = 0
    """Of shipped replies, those on which it voted right."""
    of: int = 0
    """Shipped replies on which it was to vote; 0: it was not asked."""
    reader: int = 0
    """The reader that was measured."""
    replies: Borders | None = None
    """How what people reply is read; None: it was not measured."""
    results: Borders | None = None
    """The same of what tools return."""

    @property
    def passed(self) -> bool:
        """Whether it judged both replies right."""
        return bool(self.marks) and all(mark.right for mark in self.marks if mark.case != "correction")

    @property
    def reads(self) -> bool:
        """Whether complaints surely differ from other replies in its log-probs."""
        return self.replies is not None and self.replies.complaint.holds

    @property
    def votes(self) -> bool:
        """Whether votes decide the reward."""
        if self.mode != "auto" or not self.passed:
            return self.mode == "write"
        is_worse = self.replies is not None and self.right < self.replies.right * self.of
        return not (self.reads and is_worse)

    @property
    def hints(self) -> bool:
        """Whether it writes hints."""
        return self.votes and (self.mode == "write" or all(mark.right for mark in self.marks))

    def fault(self, judge: str) -> str | None:
        """The fault and its remedy, in sentences that begin with the judge; None if there is none."""
        if self.passed or (self.reads and not self.votes):
            return None
        if self.mode == "read":
            found = self.replies and f"it finds {self.replies.complaint.described('complaints')}"
            why, remedy = found or "its log-probs are not available", "Set judge.mode to auto, or judge.url"
        else:
            why, remedy = self._why()
        meanwhile = (
            "Its votes count nevertheless" if self.votes else "Until then thumbs and failed tool calls teach"
        )
        return f"{judge} cannot judge: {why}. {remedy}. {meanwhile}."

    def _why(self) -> tuple[str, str]:
        refused = next((mark.refused for mark in self.marks if mark.refused), None)
        read, of = sum(mark.read for mark in self.marks), len(self.marks)
        if refused is not None:
            return refused, "See that judge.model and judge.body_omit fit that endpoint"
        if 2 * sum(mark.cut_thought for mark in self.marks) >= of:
            why = "it was still thinking when its tokens ran out"
            return why, "Raise judge.max_tokens, or switch its thinking off"
        remedy = "Set judge.url to a stronger model, as docs/judging.md shows"
        if 2 * read < of:
            return f"{read} of {of} probe answers carried a readable vote", remedy
        return f"{sum(mark.right for mark in self.marks)} of {of} probes were judged right", remedy

    def described(self) -> str:
        """How it judges, and how well, in words."""
        if self.votes:
            votes = f" ({self.right} of {self.of} shipped replies right)" if self.of else ""
            return f"it writes votes{votes}, and " + (
                "hints" if self.hints else "people's own words are the hints"
            )
        if not self.reads or self.replies is None:
            return "it does not judge"
        thanks = self.replies.thanks
        found = [self.replies.complaint.described("complaints")]
        found += [thanks.described("thanks")] if thanks.holds else []
        if self.results is not None and self.results.complaint.holds:
            found.append(self.results.complaint.described("failures of tools"))
        return f"it reads replies: it finds {', '.join(found)}. People's own words are the hints"


ABLE = Ability(marks=tuple(Mark(case=case.name, read=True, right=True) for case in EXAM))
"""Of a judge that is not examined."""


def better(first: Sequence[Mark], second: Sequence[Mark]) -> tuple[Mark, ...]:
    """Of two tries at the same cases, the better mark of each."""
    pairs = zip(first, second, strict=True)
    return tuple(max(pair, key=lambda mark: (mark.right, mark.read)) for pair in pairs)

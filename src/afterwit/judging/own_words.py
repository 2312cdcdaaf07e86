"""Verdicts without a judge: from feedback, failed calls and a person's own words. Pure.

A correction in the person's own words is itself the hint: the teacher reads it before it answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from afterwit.judging.answered import marked
from afterwit.judging.polarity import Reading
from afterwit.judging.questions import JudgeCase, reactions
from afterwit.judging.voting import Decided
from afterwit.message import Message
from afterwit.verdict import NextState, Question, Source, Verdict, Vote

MOST_CHARS = 1000
"""Longer replies are material for the next answer more than words about the last one."""
_LETTERS = re.compile(r"[^\W\d_]")


def own_words(next_state: NextState) -> str:
    """The words of people after the response, without the client's text; empty without a meaningful one."""
    said = [each.content or "" for each in reactions(next_state.messages) if each.role == "user"]
    if next_state.feedback is not None and next_state.feedback.text:
        said.append(next_state.feedback.text)
    words = "\n".join(said).strip()
    return words if _LETTERS.search(words) else ""


def unvoted(case: JudgeCase, next_state: NextState, reading: Reading) -> Verdict:
    """The verdict without a vote.

    Feedback decides the reward, then a call that its schema refuses, then how the person's words were read,
    then a tool's result that is marked as an error. The words are the hint if the feedback is bad, or if they
    may be a complaint and there is none.
    """
    words = own_words(next_state)
    read = Decided(reward=reading.value, source=Source.READ) if words and reading.value else None
    failed = Decided(reward=-1, source=Source.TOOL) if failed_call(next_state.messages) else None
    found = case.decided or read or failed or Decided(reward=0, source=Source.READ)
    feedback = next_state.feedback.reward if next_state.feedback is not None else None
    complaint = feedback == -1 or (feedback is None and reading.hint)
    told = Verdict(reward=found.reward, source=found.source)
    return with_own_words(told, words, reading) if complaint else _noted(told, words, reading, hint=None)


def with_own_words(verdict: Verdict, words: str, reading: Reading) -> Verdict:
    """The verdict with the person's words as its hint, if they can be one."""
    return _noted(verdict, words, reading, hint=words if words and len(words) <= MOST_CHARS else None)


def _noted(verdict: Verdict, words: str, reading: Reading, *, hint: str | None) -> Verdict:
    """The verdict with a vote that records the reading of the words."""
    if not words:
        return verdict
    long = f"over {MOST_CHARS} characters" if hint is None and len(words) > MOST_CHARS else None
    vote = Vote(
        question=Question.OWN_WORDS, words=reading.words, value=reading.value or 0, hint=hint, rejected=long
    )
    return replace(verdict, hints=(hint,) if hint else (), votes=(*verdict.votes, vote))


def failed_call(messages: Iterable[Message]) -> bool:
    """Whether the last result of a tool is an error by its own mark.

    JSON carries it as `{"isError": true}` or `{"error": "no such file"}`; Anthropic's `is_error` is stored as
    `Error: ` before the text.
    """
    results = [message.content or "" for message in messages if message.role == "tool"]
    if not results:
        return False
    last = results[-1].strip()
    return last.startswith("Error: ") or (last.startswith("{") and marked(last) is True)

"""Verdicts from evidence that needs no vote: feedback, failed calls and a person's own words. Pure.

A correction in the person's own words is itself the hint: the teacher reads it before it answers.

A call that worked is not faulted for its schema, which may be stricter than its tool: the tool takes null for
an argument that it can do without, "5" for an integer, or its own default for a field that the schema
requires. Where a call failed, or nothing came back, the schema decides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from afterwit.dialects.fields import FAILURE
from afterwit.judging.polarity import Reading
from afterwit.judging.questions import JudgeCase, JudgeView, reactions
from afterwit.text import IDEOGRAPHS
from afterwit.turn import Conversation, Message, plain_id
from afterwit.verdict import NextState, Question, Source, Verdict, Vote
from afterwit.vetting.own_words import teachable

MOST_CHARS = 1000
"""Longer replies are material for the next answer more than words about the last one."""
SAME_FORM = 0.6
"""Share of common words from which on two requests are of one form."""
OPENING = 200
"""Characters at the beginning of a result that are searched for a failure."""
_WORD = re.compile(rf"[^\W{IDEOGRAPHS}]+|(?=([{IDEOGRAPHS}]{{2}}))")
"""A word, or two neighbours of a text that divides none by spaces."""
_LETTERS = re.compile(r"[^\W\d_]")
_FAILED = re.compile(
    r"[\W_]*(?:(?:[\w.]+ ){0,3}\w*(?:error|exception)(?: -?\d+)?\s*(?:[:>\])]|\n|\Z)"
    r"|(?:an |the )?error (?:executing|calling|running|invoking|processing|parsing|reading)\b"
    r"|(?:an |the )?error (?:occurred|while|when|in)\b"
    r"|(?:traceback|failed|failure|invalid|could not|cannot|can't|unable to|no such)\b)",
    re.IGNORECASE,
)
"""The beginning of a result that reports a failure, also in brackets or a tag."""
_REFUSED = re.compile(
    r"\binvalid (?:\w+ )?(?:arguments?|parameters?|params|inputs?|json)\b|\bvalidation (?:error|failed)"
    r"|\b(?:missing|must have|lacks) (?:\w+ ){0,3}(?:argument|parameter|propertie|property|field|key)s?\b"
    r"|\brequired (?:property|argument|parameter|field)\b|\bunexpected keyword argument\b"
    r"|\b(?:tool|function)\b.{0,60}\b(?:does not exist|not found|is not (?:a valid|available|known))\b"
    r"|\bis not a (?:valid|known) (?:tool|function)\b|\bunknown (?:tool|function)\b",
    re.IGNORECASE,
)
"""The words in which a tool, or the client in its place, refuses its arguments."""
_OBSERVED = re.compile(r"(?:Call id: \S+\s+)?Observation:\s*")
"""The beginning of results that clients send under the person's name."""

_BAD_STATES = ("error", "failed", "failure")


def own_words(next_state: NextState) -> str:
    """The words of people after the response, without the client's text; empty without a meaningful one."""
    said = [each.content or "" for each in reactions(next_state.messages) if each.role == "user"]
    if next_state.feedback is not None and next_state.feedback.text:
        said.append(next_state.feedback.text)
    words = "\n".join(said).strip()
    return words if _LETTERS.search(words) else ""


def is_asked_again(words: str, conversation: Conversation) -> bool:
    """Whether the words are a request in the form of the conversation's first one, about something else.

    They share most of their words, and each has words of its own. What repeats all words of the first one may
    complain that it was not followed.
    """
    said = (each.content or "" for each in reactions(conversation.messages) if each.role == "user")
    first, now = _words(next(said, "")[:MOST_CHARS]), _words(words[:MOST_CHARS])
    return bool(first - now and now - first) and len(first & now) >= SAME_FORM * max(len(first), len(now))


def _words(text: str) -> frozenset[str]:
    return frozenset(found[1] or found[0] for found in _WORD.finditer(text.casefold())) - {""}


def unvoted(case: JudgeCase, next_state: NextState, reading: Reading) -> Verdict:
    """The verdict without a vote.

    Feedback decides the reward, then a call that its schema refuses, then how the person's words were read,
    then a tool's result that is marked as an error, or was read as one. The words are the hint if the
    feedback is bad, or if they may be a complaint and there is none.
    """
    words = own_words(next_state)
    if case.decided is not None:
        reward, source = case.decided
    elif words and reading.value:
        reward, source = reading.value, Source.READ
    elif failed_call(next_state.messages):
        reward, source = -1, Source.TOOL
    else:  # a tool's result alone is not praise: many calls that work are useless
        reward, source = min(0, reading.value or 0), Source.READ
    feedback = next_state.feedback.reward if next_state.feedback is not None else None
    complains = feedback == -1 or (feedback is None and reading.hint)
    return with_own_words(Verdict(reward=reward, source=source), words, reading, case.view, teach=complains)


def with_own_words(
    verdict: Verdict, words: str, reading: Reading, view: JudgeView, *, teach: bool = True
) -> Verdict:
    """The verdict with a vote that records the reading of the words. With `teach` they are its hint, without
    parts that cannot be one. A complaint about facts that the model could not know gives no reward either."""
    if not words:
        return verdict
    hint, rejected = "", None
    if len(words) > MOST_CHARS:
        rejected = f"over {MOST_CHARS} characters"
    elif teach and not (hint := teachable(words, view)):
        rejected = "only the person could know this"
        if verdict.source is Source.READ:
            verdict = replace(verdict, reward=0)
    vote = Vote(
        question=Question.OWN_WORDS,
        words=reading.words,
        value=reading.value or 0,
        hint=hint or None,
        rejected=rejected,
    )
    return replace(verdict, hints=(hint,) if hint else (), votes=(*verdict.votes, vote))


def failed_call(messages: Iterable[Message]) -> bool:
    """Whether the last result of a tool is an error by its own mark.

    JSON carries it as `{"isError": true}` or `{"error": "no such file"}`; Anthropic's `is_error` is stored as
    `FAILURE` before the text.
    """
    results = [message.content or "" for message in messages if message.role == "tool"]
    last = results[-1].strip() if results else ""
    return last.startswith(FAILURE.strip()) or (last.startswith("{") and _marked(last) is True)


def without_answered_calls(response: Message, next_state: Sequence[Message]) -> Message:
    """The response without the calls whose results are in the next state and report no failure.

    A result belongs to the call of its id; those under other ids belong to the other calls, in order.
    """
    returned = []
    for message in next_state:
        content = message.content or ""
        if message.role == "tool":
            returned.append((plain_id(message.tool_call_id or ""), content))
        elif message.role == "user" and (observed := _OBSERVED.match(content)):
            returned.append(("", content[observed.end() :]))
    ours = {plain_id(call.id) for call in response.tool_calls}
    named = {id: content for id, content in returned if id in ours}
    others = iter([content for id, content in returned if id not in ours])
    left = []
    for call in response.tool_calls:
        id = plain_id(call.id)
        result = named[id] if id in named else next(others, None)
        if result is None or failed(result):
            left.append(call)
    return replace(response, tool_calls=tuple(left))


def failed(result: str) -> bool:
    """Whether a result reports at its beginning that the call failed or was refused."""
    text = result.strip()
    if text.startswith("{") and (marked := _marked(text)) is not None:
        return marked
    opening = text[:OPENING]
    return _FAILED.match(opening) is not None or _REFUSED.search(opening) is not None


def _marked(text: str) -> bool | None:
    """Whether a JSON object marks itself as a failure; None if the text is none."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return None
    denied = told.get("success") is False or told.get("ok") is False
    flagged = told.get("isError") is True or told.get("is_error") is True
    named = bool(told.get("error") or told.get("errors")) or told.get("status") in _BAD_STATES
    return denied or flagged or named

"""What the page calls things, in plain words. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from afterwit.core.lifecycle import Reason, State
from afterwit.core.message import Message

STATES: Mapping[State, str] = {
    State.OPEN: "waits for what follows",
    State.ANSWERED: "waits for the judge",
    State.JUDGED: "waits to be learned from",
    State.TRAINED: "learned",
    State.SKIPPED: "not learned",
}

REASONS: Mapping[Reason, str] = {
    Reason.NO_NEXT_STATE: "nothing followed",
    Reason.NO_SIGNAL: "what followed said neither good nor bad",
    Reason.ALREADY_GOOD: "it was good already",
    Reason.ALREADY_CONFIDENT: "the model was sure of it already",
    Reason.EMPTY_RESPONSE: "the response was empty",
    Reason.DOUBTFUL_HINT: "its hint may be what a tool's words planted",
    Reason.SUPERSEDED: "it was asked for again",
    Reason.REVERTED: "what it taught was taken back",
    Reason.FORGOTTEN: "its conversation was forgotten",
    Reason.CLIENT_LEFT: "the client left",
    Reason.SIDE_TURN: "a title, a summary or a review beside the conversation",
    Reason.UNKNOWN_BRANCH: "nobody knows yet which branch went on",
    Reason.AMBIGUOUS_PARENT: "several turns may be the one before it",
    Reason.KEY_DOES_NOT_TEACH: "its key may not teach",
    Reason.NOT_SAMPLED_HERE: "it was recorded elsewhere",
    Reason.PENALTIES: "it was sampled with penalties",
    Reason.GREEDY_WITHOUT_HINT: "it was sampled greedily, and there was no hint",
    Reason.TRUNCATED_SAMPLING_WITHOUT_HINT: "its sampling was truncated, and there was no hint",
    Reason.CUT_AT_LENGTH: "it was cut at its length",
    Reason.ALL_FORCED: "all its tokens were forced",
    Reason.RENDER_MISMATCH: "its prompt could not be rendered again as it was",
    Reason.TOO_LONG: "it is too long to train on",
    Reason.REVIEW_REFUSED: "a person refused it",
    Reason.EXCLUDED: "its session teaches nothing",
    Reason.HOLDS_SECRET: "it holds a secret",
    Reason.STALE: "it is too old for the present weights",
    Reason.NOT_FINITE: "its numbers were not finite",
    Reason.HELD_BACK: "its update would have lost what people approved",
    Reason.INVALID_VOTES: "the judge's answers could not be read",
    Reason.JUDGE_FAILED: "the judge did not answer",
    Reason.TEACHER_FAILED: "the teacher did not answer",
    Reason.LEARNER_FAILED: "the learner failed",
}


def reason(why: Reason) -> str:
    """Why a turn was not learned from."""
    return REASONS.get(why, plain(why))


def plain(name: str) -> str:
    """A name of the code as words: `mismatch_mean` -> `mismatch mean`."""
    return name.replace("_", " ")


def signed(value: int | None) -> str:
    """A reward with its sign, with a true minus."""
    return "" if value is None else {-1: "\u22121", 0: "0", 1: "+1"}[value]


def count(number: int, noun: str, nouns: str | None = None) -> str:
    """`1 turn`, `2 turns`."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def one_line(message: Message, width: int = 160) -> str:
    """A message in one line: its calls, then its text."""
    parts = [f"{call.name}({call.arguments})" for call in message.tool_calls]
    parts.append(message.content or "")
    text = " ".join(" ".join(parts).split())
    return text if len(text) <= width else text[: width - 1] + "\u2026"

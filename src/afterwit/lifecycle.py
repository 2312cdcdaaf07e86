"""The states of a turn, the permitted moves, and the reasons for which a turn ends early."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class State(StrEnum):
    """The state of a turn."""

    OPEN = "OPEN"
    """Served and stored; its next state is not known yet."""
    ANSWERED = "ANSWERED"
    """Its next state is known; the judge is next."""
    JUDGED = "JUDGED"
    """It has a verdict that trains; the learner is next."""
    TRAINED = "TRAINED"
    """A published checkpoint's manifest names it."""
    SKIPPED = "SKIPPED"
    """It ended without training, for a counted reason."""


MOVES: dict[State, frozenset[State]] = {
    State.OPEN: frozenset({State.ANSWERED, State.SKIPPED}),
    State.ANSWERED: frozenset({State.ANSWERED, State.JUDGED, State.SKIPPED}),
    State.JUDGED: frozenset({State.ANSWERED, State.TRAINED, State.SKIPPED}),
    State.TRAINED: frozenset({State.JUDGED, State.SKIPPED}),
    State.SKIPPED: frozenset({State.ANSWERED, State.JUDGED}),
}
"""ANSWERED again: more of the next state, or feedback, arrived. JUDGED -> ANSWERED: feedback before training.
TRAINED -> JUDGED: its checkpoint did not survive. TRAINED -> SKIPPED: rolled back.
SKIPPED -> ANSWERED or JUDGED: a late reply, feedback, or `requeue`."""


class ReasonClass(StrEnum):
    """The meaning of a reason for the person who reads it."""

    NOTHING_TO_LEARN = "nothing_to_learn"
    NOT_TRAINABLE = "not_trainable"
    FAILED = "failed"
    """`requeue` may put it back."""


NOTHING, UNFIT, FAILED = ReasonClass.NOTHING_TO_LEARN, ReasonClass.NOT_TRAINABLE, ReasonClass.FAILED


class Worded(StrEnum):
    """A value, as it is stored, and `words` about it."""

    words: str

    def __new__(cls, value: str, words: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_, member.words = value, words
        return member


class Reason(StrEnum):
    """Why a turn was skipped. The value is what the store holds and the metrics count.

    `words` is the reason for people. `reopened`: the end depends on the next state, so a new one, or
    feedback, makes the turn ANSWERED again.
    """

    kind: ReasonClass
    words: str
    reopened: bool

    def __new__(cls, value: str, kind: ReasonClass = UNFIT, words: str = "", reopened: bool = False) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.kind, member.words, member.reopened = kind, words, reopened
        return member

    NO_NEXT_STATE = "no_next_state", NOTHING, "nothing followed", True
    NO_SIGNAL = "no_signal", NOTHING, "nothing that followed shows whether it was good", True
    HINT_NOT_FOLLOWED = "hint_not_followed", NOTHING, "the model cannot follow its hint", True
    ALREADY_GOOD = "already_good", NOTHING, "it was good already", True
    ALREADY_CONFIDENT = "already_confident", NOTHING, "the model was sure of it already", True
    EMPTY_RESPONSE = "empty_response", NOTHING, "the response was empty"
    SUPERSEDED = "superseded", UNFIT, "the client requested it again"
    REVERTED = "reverted", UNFIT, "what it taught was taken back"
    FORGOTTEN = "forgotten", UNFIT, "its conversation or lesson was forgotten"
    CLIENT_LEFT = "client_left", UNFIT, "the client left"
    SIDE_TURN = "side_turn", UNFIT, "it is a title, a summary or a review, not the conversation"
    UNKNOWN_BRANCH = "unknown_branch", UNFIT, "it is not known yet which branch continues"
    AMBIGUOUS_PARENT = "ambiguous_parent", UNFIT, "several turns may be the one before it"
    KEY_DOES_NOT_TEACH = "key_does_not_teach", UNFIT, "its key may not teach"
    NOT_SAMPLED_HERE = "not_sampled_here", UNFIT, "it was recorded elsewhere"
    PENALTIES = "penalties", UNFIT, "it was sampled with penalties"
    GREEDY_WITHOUT_HINT = "greedy_without_hint", UNFIT, "it was sampled greedily, and there was no hint", True
    TRUNCATED_SAMPLING_WITHOUT_HINT = (
        "truncated_sampling_without_hint",
        UNFIT,
        "its sampling was truncated, and there was no hint",
        True,
    )
    CUT_AT_LENGTH = "cut_at_length", UNFIT, "it was cut at its length", True
    ALL_FORCED = "all_forced", UNFIT, "all its tokens were forced"
    RENDER_MISMATCH = "render_mismatch", UNFIT, "its prompt could not be rendered again as it was"
    TOO_LONG = "too_long", UNFIT, "it is too long to train on"
    STALE = "stale", UNFIT, "it is too old for the present weights"
    NOT_FINITE = "not_finite", FAILED, "its numbers were not finite"
    HELD_BACK = "held_back", FAILED, "its update would have lost what people approved"
    REVIEW_REFUSED = "review_refused", UNFIT, "a person refused it"
    LESSON_CHANGED = "lesson_changed", UNFIT, "its lesson was dropped or changed"
    EXCLUDED = "excluded", UNFIT, "its session teaches nothing"
    HOLDS_SECRET = "holds_secret", UNFIT, "it holds a secret"
    DOUBTFUL_HINT = "doubtful_hint", NOTHING, "a tool's words may have planted its hint"
    INVALID_VOTES = "invalid_votes", FAILED, "the judge's answers could not be read", True
    JUDGE_FAILED = "judge_failed", FAILED, "the judge did not answer", True
    TEACHER_FAILED = "teacher_failed", FAILED, "the teacher did not answer"
    LEARNER_FAILED = "learner_failed", FAILED, "the learner failed"


REOPENED_BY_NEXT_STATE = frozenset(reason for reason in Reason if reason.reopened)
REOPENED_ON_MAIN_LINE = frozenset((Reason.UNKNOWN_BRANCH, Reason.SIDE_TURN))
"""Ends of turns off the main line. One that is on it after all is ANSWERED if its next state is known."""

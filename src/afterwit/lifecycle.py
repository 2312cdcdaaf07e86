"""The states of a turn, the permitted moves, and the reasons for which a turn ends early."""

from __future__ import annotations

from enum import StrEnum

from afterwit.errors import IllegalMove


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


class Reason(StrEnum):
    """Why a turn was skipped. The value is what the store holds and the metrics count."""

    NO_NEXT_STATE = "no_next_state"
    NO_SIGNAL = "no_signal"
    ALREADY_GOOD = "already_good"
    ALREADY_CONFIDENT = "already_confident"
    EMPTY_RESPONSE = "empty_response"
    SUPERSEDED = "superseded"
    REVERTED = "reverted"
    FORGOTTEN = "forgotten"
    CLIENT_LEFT = "client_left"
    SIDE_TURN = "side_turn"
    UNKNOWN_BRANCH = "unknown_branch"
    AMBIGUOUS_PARENT = "ambiguous_parent"
    KEY_DOES_NOT_TEACH = "key_does_not_teach"
    NOT_SAMPLED_HERE = "not_sampled_here"
    PENALTIES = "penalties"
    GREEDY_WITHOUT_HINT = "greedy_without_hint"
    TRUNCATED_SAMPLING_WITHOUT_HINT = "truncated_sampling_without_hint"
    CUT_AT_LENGTH = "cut_at_length"
    ALL_FORCED = "all_forced"
    RENDER_MISMATCH = "render_mismatch"
    TOO_LONG = "too_long"
    STALE = "stale"
    NOT_FINITE = "not_finite"
    HELD_BACK = "held_back"
    REVIEW_REFUSED = "review_refused"
    EXCLUDED = "excluded"
    HOLDS_SECRET = "holds_secret"
    DOUBTFUL_HINT = "doubtful_hint"
    INVALID_VOTES = "invalid_votes"
    JUDGE_FAILED = "judge_failed"
    TEACHER_FAILED = "teacher_failed"
    LEARNER_FAILED = "learner_failed"


CLASS_OF: dict[Reason, ReasonClass] = {
    **dict.fromkeys(Reason, ReasonClass.NOT_TRAINABLE),
    **dict.fromkeys(
        (
            *(Reason.NO_NEXT_STATE, Reason.NO_SIGNAL, Reason.EMPTY_RESPONSE),
            *(Reason.ALREADY_GOOD, Reason.ALREADY_CONFIDENT, Reason.DOUBTFUL_HINT),
        ),
        ReasonClass.NOTHING_TO_LEARN,
    ),
    **dict.fromkeys(
        (
            *(Reason.NOT_FINITE, Reason.HELD_BACK, Reason.INVALID_VOTES),
            *(Reason.JUDGE_FAILED, Reason.TEACHER_FAILED, Reason.LEARNER_FAILED),
        ),
        ReasonClass.FAILED,
    ),
}

REOPENED_BY_NEXT_STATE = frozenset(
    (
        *(Reason.NO_NEXT_STATE, Reason.NO_SIGNAL, Reason.ALREADY_GOOD, Reason.ALREADY_CONFIDENT),
        *(Reason.GREEDY_WITHOUT_HINT, Reason.TRUNCATED_SAMPLING_WITHOUT_HINT, Reason.CUT_AT_LENGTH),
        *(Reason.INVALID_VOTES, Reason.JUDGE_FAILED),
    )
)
"""Ends that depend on the next state: a new one, or feedback, makes the turn ANSWERED again."""
REOPENED_ON_MAIN_LINE = frozenset((Reason.UNKNOWN_BRANCH, Reason.SIDE_TURN))
"""Ends of turns off the main line. One that is on it after all is ANSWERED if its next state is known."""


def check_move(turn: str, old: State, new: State) -> None:
    """Raise IllegalMove unless the table has the move."""
    if new not in MOVES[old]:
        raise IllegalMove(f"turn {turn} cannot go from {old} to {new}")

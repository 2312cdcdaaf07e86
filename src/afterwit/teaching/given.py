"""A person's own hints and better answers. Pure, linear time.

Both become hints of the turn, in place of the judge's. A better answer becomes part of the teacher's prompt
as a demonstration (SDFT, arXiv:2601.19897): the policy learns from what it sampled itself, never from these
words.
"""

from __future__ import annotations

from dataclasses import replace

from afterwit.judging.personal import teachable
from afterwit.judging.questions import view_of
from afterwit.judging.voting import MIN_CHARS, VoteRules, long_enough, select_candidates, speaks_of_hints
from afterwit.teaching.redaction import Redaction
from afterwit.turn import RecordedTurn
from afterwit.verdict import Feedback, NextState, Question, Verdict, Vote

MOST_HINT = 1000
"""Characters of a hint."""
MOST_CORRECTION = 8000
"""Characters of a better answer: the teacher reads it with the whole prompt."""
_BEFORE, _AFTER = "Here is an example of a good answer:", "Now answer in your own words."


def demonstration(correction: str) -> str:
    """The hint that shows a better answer to the teacher."""
    return f"{_BEFORE}\n\n{correction}\n\n{_AFTER}"


def is_demonstration(hint: str) -> bool:
    """Whether a hint shows an answer, which belongs to its own prompt alone."""
    return hint.startswith(_BEFORE) and hint.endswith(_AFTER)


def fault_in_words(feedback: Feedback, redaction: Redaction) -> tuple[str, str] | None:
    """The field that cannot teach and the reason in a sentence, as far as the words show; None: both can."""
    hint, correction = feedback.hint, feedback.correction
    if hint is not None:
        if len(hint) > MOST_HINT:
            return "hint", f"hint is limited to {MOST_HINT} characters, not {len(hint)}: send one thought."
        if not long_enough(hint):
            return "hint", f"hint needs {MIN_CHARS} characters or more: describe a better answer."
        if speaks_of_hints(hint):
            return "hint", "hint mentions hints, which the model would learn to do: write only what to do."
    if correction is not None and len(correction) > MOST_CORRECTION:
        return "correction", f"correction is limited to {MOST_CORRECTION} characters, not {len(correction)}."
    for name, words in (("hint", hint), ("correction", correction)):
        if words is not None and redaction.found([words]):
            return name, f"{name} holds a secret, such as a key, a card number or an address: leave it out."
    return None


def fault_for_turn(feedback: Feedback, turn: RecordedTurn) -> tuple[str, str] | None:
    """As `fault_in_words`, as far as the turn shows."""
    hint, correction, answer = feedback.hint, feedback.correction, turn.message.content or ""
    if correction is not None and correction.split() == answer.split():
        return "correction", "correction is the answer itself: change it, or send thumb up."
    asked = view_of(turn.conversation, turn.message, NextState(feedback=feedback))
    if hint is not None and teachable(hint, asked) != hint:
        why = "a name, a date or a number that the model had not read, so it would learn to guess"
        return "hint", f"hint holds {why}: describe how to answer, or send a correction."
    return None


def taught(feedback: Feedback) -> list[str]:
    """The hints that a person gave: their own, and their better answer as a demonstration."""
    shown = None if feedback.correction is None else demonstration(feedback.correction)
    return [hint for hint in (feedback.hint, shown) if hint is not None]


def with_given(verdict: Verdict, next_state: NextState, rules: VoteRules) -> Verdict:
    """The verdict with what a person taught as its hints, if they did, and a vote for each."""
    feedback = next_state.feedback
    if feedback is None or not feedback.teaches:
        return verdict
    given = taught(feedback)
    longest, most = rules.reads.keeps_longest, rules.max_candidates
    votes = [Vote(question=Question.OWN_WORDS, words="", value=0, hint=hint) for hint in given]
    hints = select_candidates(given, max_candidates=most, longest=longest)
    return replace(verdict, hints=hints, votes=(*verdict.votes, *votes))

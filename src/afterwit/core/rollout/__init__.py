"""Whole rollouts: recorded, judged and scored in hindsight.

rollout         its turns with their next states, and the samples that judging makes of them
token_sequence  its turns end to end, each at the place where it was captured
scored          each turn with the rows of its teacher
"""

from afterwit.core.rollout.rollout import Ended, Rollout, pairs, sample_of, samples
from afterwit.core.rollout.scored import ScoredRollout, ScoredTurn, TeacherRow, Unscored, is_logprob
from afterwit.core.rollout.token_sequence import Span, TokenSequence, sequences

__all__ = [
    "Ended",
    "Rollout",
    "ScoredRollout",
    "ScoredTurn",
    "Span",
    "TeacherRow",
    "TokenSequence",
    "Unscored",
    "is_logprob",
    "pairs",
    "sample_of",
    "samples",
    "sequences",
]

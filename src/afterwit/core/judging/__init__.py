"""From a turn and its next state to a verdict.

hindsight    what the judge is shown and asked, and the verdict from its answers
voting       votes read and counted, and which hints are kept
hint_rules   what a hint may not say
hints        how a hint is put into a prompt; hinted_prompts: the prompts of a turn's teachers
repeats      whether a response repeats a tool call
answered     which of its calls a tool answered well
"""

from afterwit.core.judging.answered import without_answered_calls
from afterwit.core.judging.hindsight import (
    JudgeCall,
    JudgeCase,
    JudgePrompts,
    JudgeView,
    call_seed,
    case_of,
    conclude,
    questions,
    reactions,
)
from afterwit.core.judging.hinted_prompts import Rendering, hinted_prompts
from afterwit.core.judging.hints import HEADING, Placement, splice
from afterwit.core.judging.repeats import repeats_a_call
from afterwit.core.judging.voting import Accept, Answer, Verify, VoteRules, evaluation_vote

__all__ = [
    "HEADING",
    "Accept",
    "Answer",
    "JudgeCall",
    "JudgeCase",
    "JudgePrompts",
    "JudgeView",
    "Placement",
    "Rendering",
    "Verify",
    "VoteRules",
    "call_seed",
    "case_of",
    "conclude",
    "evaluation_vote",
    "hinted_prompts",
    "questions",
    "reactions",
    "repeats_a_call",
    "splice",
    "without_answered_calls",
]

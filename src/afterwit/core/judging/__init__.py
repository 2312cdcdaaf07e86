"""From a turn and its next state to a verdict.

hindsight    what the judge is shown and asked, and the verdict from its answers
voting       votes read and counted, and which hints are kept
hint_rules   what a hint may not say
own_words    what is learned where the judge says nothing; polarity: how a reply is read there
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
    paid,
    questions,
    reactions,
)
from afterwit.core.judging.hinted_prompts import Rendering, hinted_prompts
from afterwit.core.judging.hints import HEADING, Placement, splice
from afterwit.core.judging.own_words import Reading, own_words, unvoted, with_own_words
from afterwit.core.judging.polarity import Border, Borders, borders
from afterwit.core.judging.repeats import repeats_a_call
from afterwit.core.judging.voting import Accept, Answer, Verify, VoteRules, evaluation_vote, hint_vote

__all__ = [
    "HEADING",
    "Accept",
    "Answer",
    "Border",
    "Borders",
    "JudgeCall",
    "JudgeCase",
    "JudgePrompts",
    "JudgeView",
    "Placement",
    "Reading",
    "Rendering",
    "Verify",
    "VoteRules",
    "borders",
    "call_seed",
    "case_of",
    "conclude",
    "evaluation_vote",
    "hint_vote",
    "hinted_prompts",
    "own_words",
    "paid",
    "questions",
    "reactions",
    "repeats_a_call",
    "splice",
    "unvoted",
    "with_own_words",
    "without_answered_calls",
]

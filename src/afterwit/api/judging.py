"""Questions, votes and hints, for packages that judge turns or add a judge."""

from afterwit.importing.recorded import following
from afterwit.judging.hinted_prompts import Placement, Rendering, hinted_prompts
from afterwit.judging.questions import JudgeCall, JudgePrompts, case_of, conclude, questions, view_of
from afterwit.judging.settings import JudgeSettings, judge_prompts
from afterwit.judging.unvoted import without_answered_calls
from afterwit.judging.verdicts import Verdicts
from afterwit.judging.voting import Answer, VoteRules
from afterwit.objective.choices import HINT_RULES, HintRule
from afterwit.teaching.hint_flags import unplanted
from afterwit.terms import Reads, untrainable

__all__ = [
    "HINT_RULES",
    "Answer",
    "HintRule",
    "JudgeCall",
    "JudgePrompts",
    "JudgeSettings",
    "Placement",
    "Reads",
    "Rendering",
    "Verdicts",
    "VoteRules",
    "case_of",
    "conclude",
    "following",
    "hinted_prompts",
    "judge_prompts",
    "questions",
    "unplanted",
    "untrainable",
    "view_of",
    "without_answered_calls",
]

"""Questions, votes and hints, for packages that judge turns or add a judge."""

from afterwit.errors import JudgeRefused, JudgeUnavailable
from afterwit.importing.importing import following
from afterwit.judging.hinted_prompts import Placement, Rendering, hinted_prompts
from afterwit.judging.settings import JudgeSettings
from afterwit.judging.verdicts import Verdicts
from afterwit.judging.voting import Answer
from afterwit.objective.settings import HINT_RULES, HintRule
from afterwit.verdict import Reads, untrainable
from afterwit.vetting.doubts import unplanted

__all__ = [
    "HINT_RULES",
    "Answer",
    "HintRule",
    "JudgeRefused",
    "JudgeSettings",
    "JudgeUnavailable",
    "Placement",
    "Reads",
    "Rendering",
    "Verdicts",
    "following",
    "hinted_prompts",
    "unplanted",
    "untrainable",
]

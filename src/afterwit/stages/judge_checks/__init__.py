"""Checks the judge while it judges: probes it once, scores its hints, says what is wrong.

stage     the loop
measured  what costs a judge or a model, kept in the store
scoring   log-probs of accepted answers, with a hint and with another
report    everything that is known, from the store
"""

from afterwit.stages.judge_checks.report import NEWEST, judge_shares, known_of_judge, report_of
from afterwit.stages.judge_checks.scoring import HintScoring
from afterwit.stages.judge_checks.stage import STAGE, JudgeChecks

__all__ = ["NEWEST", "STAGE", "HintScoring", "JudgeChecks", "judge_shares", "known_of_judge", "report_of"]

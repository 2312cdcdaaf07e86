"""Whether a judge can be trusted, from what it said and what came of it. Pure.

judged      what the store keeps of a judged turn
agreement   whether the votes on one turn agree
calibration whether votes agree with feedback, and with how requests ended
probes      whether flattery moves the judge
hints       whether hints make likelier what people then accepted
report      all of it, and what is wrong in plain sentences
"""

from afterwit.core.judge_checks.agreement import Agreement, agreement
from afterwit.core.judge_checks.calibration import Calibration, Outcomes, Share, calibration, outcomes
from afterwit.core.judge_checks.hints import HintLift, HintLifts, HintPair, hint_lifts, hint_pairs
from afterwit.core.judge_checks.judged import Judged
from afterwit.core.judge_checks.probes import PROBES, Probe, Probed, probed
from afterwit.core.judge_checks.report import MOST_WRONG, JudgeReport, judge_report, warnings

__all__ = [
    "MOST_WRONG",
    "PROBES",
    "Agreement",
    "Calibration",
    "HintLift",
    "HintLifts",
    "HintPair",
    "JudgeReport",
    "Judged",
    "Outcomes",
    "Probe",
    "Probed",
    "Share",
    "agreement",
    "calibration",
    "hint_lifts",
    "hint_pairs",
    "judge_report",
    "outcomes",
    "probed",
    "warnings",
]

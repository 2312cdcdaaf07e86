"""A judge made of rules, and how often any judge is right on turns with known truth."""

from afterwit.apps.demo.judge.held_out_cases import accuracy
from afterwit.apps.demo.judge.rule_judge import APPROVING, Judge, RuleJudge

__all__ = ["APPROVING", "Judge", "RuleJudge", "accuracy"]

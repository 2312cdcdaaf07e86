"""What a run shows while it is played, and the files it leaves."""

from afterwit.apps.demo.report.before_after import examples, rules_learned
from afterwit.apps.demo.report.conversations import Conversation, conversations_of
from afterwit.apps.demo.report.display import Display
from afterwit.apps.demo.report.report import Decision, Report, write
from afterwit.apps.demo.report.ruined import compared, write_compared

__all__ = [
    "Conversation",
    "Decision",
    "Display",
    "Report",
    "compared",
    "conversations_of",
    "examples",
    "rules_learned",
    "write",
    "write_compared",
]

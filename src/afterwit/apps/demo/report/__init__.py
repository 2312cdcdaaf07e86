"""What a run shows while it is played, and the files it leaves."""

from afterwit.apps.demo.report.before_after import examples, rules_learned
from afterwit.apps.demo.report.display import Display
from afterwit.apps.demo.report.lessons import Lesson, lessons_of
from afterwit.apps.demo.report.report import Report, write

__all__ = ["Display", "Lesson", "Report", "examples", "lessons_of", "rules_learned", "write"]

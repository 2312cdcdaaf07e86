"""Whether a version may serve, and whether the one that serves must go. Pure.

evidence   how sure it is that more was lost than may be
items      turns that people approved, and the kinds that they are counted in
suite      before a version serves: does it still do what people approved?
episodes   how people's requests ended, and which turns were approved
watch      while a version serves: do episodes end as they should?
events     what was decided, and what follows from it
"""

from afterwit.core.promotion.episodes import BadEnd, Episode, Step, closes, episode, without_end
from afterwit.core.promotion.events import (
    Event,
    EventKind,
    alarms_in_a_row,
    braked,
    confirmed,
    held_in_a_row,
    pace,
)
from afterwit.core.promotion.evidence import e_value, ongoing_evidence
from afterwit.core.promotion.items import Complaint, Doubt, Item, doubts, stratum_of
from afterwit.core.promotion.suite import Standing, Suite, SuiteResult
from afterwit.core.promotion.watch import Watch

__all__ = [
    "BadEnd",
    "Complaint",
    "Doubt",
    "Episode",
    "Event",
    "EventKind",
    "Item",
    "Standing",
    "Step",
    "Suite",
    "SuiteResult",
    "Watch",
    "alarms_in_a_row",
    "braked",
    "closes",
    "confirmed",
    "doubts",
    "e_value",
    "episode",
    "held_in_a_row",
    "ongoing_evidence",
    "pace",
    "stratum_of",
    "without_end",
]

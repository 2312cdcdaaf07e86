"""Whether a version may serve, and whether the one that serves must go. Pure.

evidence   how sure it is that more was lost than may be
suite      before a version serves: does it still do what people approved?
watch      while it serves: do sessions end as they should?
"""

from afterwit.core.promotion.evidence import e_value, ongoing_evidence
from afterwit.core.promotion.suite import Item, Standing, Suite, SuiteResult, stratum_of
from afterwit.core.promotion.watch import BadEnd, SessionEnd, Watch, bad_end

__all__ = [
    "BadEnd",
    "Item",
    "SessionEnd",
    "Standing",
    "Suite",
    "SuiteResult",
    "Watch",
    "bad_end",
    "e_value",
    "ongoing_evidence",
    "stratum_of",
]

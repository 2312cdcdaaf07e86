"""What may teach, and what a person is asked first. Pure.

flags           what is doubtful about a verdict
hint_flags      which hints are
contradiction   which rewards are
review          which turns wait for a person, and what may be learned from the others meanwhile
shares          how much of an update one source gives
"""

from afterwit.core.teaching.contradiction import Votes, contradicts, previous, several, signature
from afterwit.core.teaching.flags import Flag
from afterwit.core.teaching.review import Review, Rule
from afterwit.core.teaching.shares import largest_share, within_limit

__all__ = [
    "Flag",
    "Review",
    "Rule",
    "Votes",
    "contradicts",
    "largest_share",
    "previous",
    "several",
    "signature",
    "within_limit",
]

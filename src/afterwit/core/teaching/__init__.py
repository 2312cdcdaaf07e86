"""What may teach, and what a person is asked first. Pure.

flags    what is doubtful about a verdict
review   which turns wait for a person, and what may be learned from them meanwhile
"""

from afterwit.core.teaching.flags import Flag
from afterwit.core.teaching.review import Review, Rule

__all__ = ["Flag", "Review", "Rule"]

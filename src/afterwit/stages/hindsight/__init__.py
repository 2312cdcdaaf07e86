"""A whole rollout in hindsight: each turn is judged by what followed, then scored by who has the hint.

hindsight   a rollout in, teacher rows for each position out
hinted_turn what one judged turn asks of the teacher, and the rows from its answer
tally       what could not be scored, and when that is too much
settings    the teacher, and how its rows are made
"""

from afterwit.stages.hindsight.hindsight import Hindsight
from afterwit.stages.hindsight.settings import HindsightSettings

__all__ = ["Hindsight", "HindsightSettings"]

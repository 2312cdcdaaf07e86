"""Whether people correct the model less: complaints a session over time, with intervals. Pure.

intervals   of a share, of the difference of two shares, of a mean
progress    sessions in the order in which they began, cut into periods of equal size
"""

from afterwit.core.progress.intervals import (
    Interval,
    bootstrap_mean,
    difference_interval,
    wilson_interval,
)
from afterwit.core.progress.progress import Period, Progress, Request, Trend, by, progress

__all__ = [
    "Interval",
    "Period",
    "Progress",
    "Request",
    "Trend",
    "bootstrap_mean",
    "by",
    "difference_interval",
    "progress",
    "wilson_interval",
]

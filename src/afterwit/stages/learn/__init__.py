"""The learn stage: claims a batch, trains a version, commits it.

stage      the loop: claim, attempt, rest
claims     the turns that this learner holds in the store
attempt    a claimed batch becomes a version, or its turns go where its failure sends them
blame      which turns a failed update counts against
health     the stage's health, stored and logged
messages   the sentences that it reports
"""

from afterwit.stages.learn.claims import STAGE
from afterwit.stages.learn.stage import Learn

__all__ = ["STAGE", "Learn"]

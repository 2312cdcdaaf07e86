"""Which versions may serve: what people approved is asked before, how their requests end is watched after.

settings   how much may be lost, and how many requests may end badly
watch      a judged turn ends an episode; too many bad ones are an alarm, good ones confirm a version
gate       an update is asked for what people approved before it becomes a version
fall_back  to which version a hold or an alarm returns
messages   the sentences that it reports
"""

from afterwit.stages.promotion.gate import Gate
from afterwit.stages.promotion.settings import PromotionSettings
from afterwit.stages.promotion.watch import WatchOver

__all__ = ["Gate", "PromotionSettings", "WatchOver"]

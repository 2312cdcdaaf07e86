"""New versions go into the engine, and which of them does.

settings      how often is looked, and how many adapters stay loaded
candidates    the versions on disk that may be served
probe         whether the weights in the engine are the version's
publisher     stages, probes and promotes the newest version of one adapter
own_adapters  which adapters of somebody's own are loaded, and when
capable       whether an engine can take what the learner writes
"""

from afterwit.stages.publish.candidates import candidates
from afterwit.stages.publish.capable import check_capable
from afterwit.stages.publish.probe import BASE, Expected, answered, examined
from afterwit.stages.publish.publisher import Publisher
from afterwit.stages.publish.settings import PublishSettings

__all__ = [
    "BASE",
    "Expected",
    "PublishSettings",
    "Publisher",
    "answered",
    "candidates",
    "check_capable",
    "examined",
]

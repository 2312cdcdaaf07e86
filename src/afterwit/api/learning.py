"""Batches, updates and versions, for packages that train in another way. Needs torch."""

from afterwit.checkpoints.versions import Versions
from afterwit.engines.port import Ids, TeacherServer
from afterwit.engines.teacher import require_servable
from afterwit.errors import NotRepeatable, RankLost, UpdateRefused, VersionTaken
from afterwit.learning.batch import Behaviour, Item, TurnLimits, build_items, item_advantages, served_sample
from afterwit.learning.claims import Claims
from afterwit.learning.distributed import Placed
from afterwit.learning.distributed.orders import Follower
from afterwit.learning.distributed.sharded import Sharded
from afterwit.learning.health import FailureKind, failure_kind
from afterwit.learning.models import copy_configuration, device_of, probe_of, without_dropout
from afterwit.learning.passes import Phase, Progress, Ranks, Row
from afterwit.learning.policy import Policy
from afterwit.learning.trainer import Trainer
from afterwit.learning.update import UpdateState, losses, require_finite
from afterwit.running.train import BatchSource, run

__all__ = [
    "BatchSource",
    "Behaviour",
    "Claims",
    "FailureKind",
    "Follower",
    "Ids",
    "Item",
    "NotRepeatable",
    "Phase",
    "Placed",
    "Policy",
    "Progress",
    "RankLost",
    "Ranks",
    "Row",
    "Sharded",
    "TeacherServer",
    "Trainer",
    "TurnLimits",
    "UpdateRefused",
    "UpdateState",
    "VersionTaken",
    "Versions",
    "build_items",
    "copy_configuration",
    "device_of",
    "failure_kind",
    "item_advantages",
    "losses",
    "probe_of",
    "require_finite",
    "require_servable",
    "run",
    "served_sample",
    "without_dropout",
]

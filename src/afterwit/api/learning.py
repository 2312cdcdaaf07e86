"""Batches, updates and versions, for packages that train in another way. Needs torch."""

from afterwit.checkpoints.versions import Versions
from afterwit.engines.teacher import ServedTeacher, given_ids, require_servable
from afterwit.errors import NotRepeatable, RankLost, UpdateRefused, VersionTaken
from afterwit.learning.batch import Behaviour, Item, TurnLimits, build_items
from afterwit.learning.claims import DAY_S, Claims
from afterwit.learning.distributed import Placed
from afterwit.learning.distributed.orders import Follower
from afterwit.learning.distributed.ranks import EMPTY_ROW, Ranks
from afterwit.learning.distributed.sharded import Sharded, ShardedMasters
from afterwit.learning.distributed.state_files import read_state
from afterwit.learning.health import FailureKind, failure_kind
from afterwit.learning.models import (
    MASTER,
    copy_configuration,
    device_of,
    load_model,
    without_dropout,
    without_prefix,
)
from afterwit.learning.phase import Phase, Progress
from afterwit.learning.policy import Policy
from afterwit.learning.rows import Row
from afterwit.learning.samples import sample_of, teacher_rows
from afterwit.learning.score import probe, stream_logits
from afterwit.learning.trainer import Trainer
from afterwit.learning.update import UpdateState, losses, require_finite, teacher_outputs
from afterwit.running.train import run
from afterwit.teacher import Ids, TeacherScores, TeacherServer

__all__ = [
    "DAY_S",
    "EMPTY_ROW",
    "MASTER",
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
    "ServedTeacher",
    "Sharded",
    "ShardedMasters",
    "TeacherScores",
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
    "given_ids",
    "load_model",
    "losses",
    "probe",
    "read_state",
    "require_finite",
    "require_servable",
    "run",
    "sample_of",
    "stream_logits",
    "teacher_outputs",
    "teacher_rows",
    "without_dropout",
    "without_prefix",
]

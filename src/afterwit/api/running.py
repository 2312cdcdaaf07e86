"""Construction and processes, for packages that run parts of Afterwit."""

from afterwit.build import (
    engine_of,
    follower_of,
    judge_client,
    store_of_model,
    teacher_server,
    versions_of,
    worker_name,
)
from afterwit.retry import BackOff, retrying
from afterwit.running.logs import set_up
from afterwit.worker import Signals, described, frames

__all__ = [
    "BackOff",
    "Signals",
    "described",
    "engine_of",
    "follower_of",
    "frames",
    "judge_client",
    "retrying",
    "set_up",
    "store_of_model",
    "teacher_server",
    "versions_of",
    "worker_name",
]

"""Construction and processes, for packages that run parts of Afterwit."""

from afterwit.build import (
    follow_versions,
    policy_server,
    store_of_model,
    teacher_server,
    verdicts_of,
    versions_of,
    worker_name,
)
from afterwit.running.logs import set_up
from afterwit.worker import BackOff, described, frames, retrying

__all__ = [
    "BackOff",
    "described",
    "follow_versions",
    "frames",
    "policy_server",
    "retrying",
    "set_up",
    "store_of_model",
    "teacher_server",
    "verdicts_of",
    "versions_of",
    "worker_name",
]

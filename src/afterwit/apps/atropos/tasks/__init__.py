"""Coding tasks and their hidden tests: eight built in, and data sets."""

from afterwit.apps.atropos.tasks.built_in import built_in
from afterwit.apps.atropos.tasks.dataset import load_tasks
from afterwit.apps.atropos.tasks.examine import examine
from afterwit.apps.atropos.tasks.rows import DatasetSettings, cache_of_the_hub
from afterwit.apps.atropos.tasks.task import SOLUTION, Task, TestVerdict

__all__ = [
    "SOLUTION",
    "DatasetSettings",
    "Task",
    "TestVerdict",
    "built_in",
    "cache_of_the_hub",
    "examine",
    "load_tasks",
]

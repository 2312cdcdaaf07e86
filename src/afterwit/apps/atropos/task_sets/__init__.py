"""Sets of tasks that the environment can play. `task_set.py` says what one is."""

from afterwit.apps.atropos.task_sets.task_set import Attempt, TaskSet

__all__ = ["Attempt", "TaskSet"]

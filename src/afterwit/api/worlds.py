"""The demo's tasks and people, for packages that play them."""

from afterwit.demo.tools.world import ToolsWorld
from afterwit.demo.words import Split
from afterwit.demo.world import Task, TaskState, World

__all__ = ["Split", "Task", "TaskState", "ToolsWorld", "World"]

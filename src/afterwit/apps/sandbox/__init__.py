"""A place where a model's actions may happen: confined files, limited processes."""

from afterwit.apps.sandbox.process import Limits, Outcome, run
from afterwit.apps.sandbox.workspace import OutsideWorkspace, Workspace

__all__ = ["Limits", "Outcome", "OutsideWorkspace", "Workspace", "run"]

"""Where a model's actions happen: files below one folder, commands with limits."""

from afterwit.apps.sandbox.process import Limits, Outcome, confined, run, weakness
from afterwit.apps.sandbox.workspace import OutsideWorkspace, Workspace

__all__ = ["Limits", "Outcome", "OutsideWorkspace", "Workspace", "confined", "run", "weakness"]

"""Where a model's actions happen: files below one folder, commands with limits."""

from __future__ import annotations

from afterwit.sandbox.process import Limits, Outcome, confined, run, weakness
from afterwit.sandbox.workspace import OutsideWorkspace, Workspace

__all__ = ["Limits", "Outcome", "OutsideWorkspace", "Workspace", "confined", "run", "weakness"]

"""Who holds a lease."""

from __future__ import annotations

import os


def worker_name(stage: str) -> str:
    """Who holds a lease: one name a process."""
    return f"{stage}-{os.uname().nodename}-{os.getpid()}"

"""What a running program says on standard error: one line an event, never a conversation."""

from __future__ import annotations

import contextlib
import logging


def log_plainly() -> None:
    """Set up logging for a process. The libraries' progress bars stay out of it."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    with contextlib.suppress(ImportError):
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()

"""Logging to standard error: one line for each event, never a conversation."""

from __future__ import annotations

import contextlib
import logging


def log_plainly() -> None:
    """Set up logging for a process that serves or trains."""
    set_up(logging.INFO)


def quiet() -> None:
    """Set up logging for a process with a display of its own: errors only."""
    set_up(logging.ERROR)


def set_up(level: int) -> None:
    """Set up logging from `level` on."""
    logging.basicConfig(level=level, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    for name in ("uvicorn", "httpx", "openai"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with contextlib.suppress(ImportError):
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()

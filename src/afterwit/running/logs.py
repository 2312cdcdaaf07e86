"""Logging to standard error: one line for each event, never a conversation."""

from __future__ import annotations

import logging

from afterwit.printing.terminal import plain


class PlainFormatter(logging.Formatter):
    """Lines without control characters: a message may quote a client or a server."""

    def format(self, record: logging.LogRecord) -> str:
        return plain(super().format(record))


def set_up(level: int) -> None:
    """Set up logging from `level` on: INFO to serve or train, ERROR under a display of its own."""
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter("%(asctime)s %(message)s", datefmt="%H:%M:%S"))
    logging.basicConfig(level=level, handlers=[handler])
    for name in ("uvicorn", "httpx", "openai"):
        logging.getLogger(name).setLevel(logging.WARNING)

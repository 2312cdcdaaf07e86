"""The key of a vLLM server that takes whole weights: `--middleware afterwit_guard.Guard`.

The server's own Python imports it, if this folder is in PYTHONPATH. It needs nothing of Afterwit there.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

OPEN = ("/health", "/metrics", "/ping")
"""Paths that probes may call."""


class Guard:
    """ASGI middleware: the server's key, VLLM_API_KEY, guards every path. vLLM leaves those of its
    development mode open: any program, and any page of the user's browser, could load weights."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app
        self._wanted = f"Bearer {os.environ.get('VLLM_API_KEY', '')}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        keyed = scope["type"] == "http" and self._wanted != b"Bearer "
        sent = dict(scope["headers"]).get(b"authorization", b"") if keyed else b""
        if not keyed or scope["path"] in OPEN or secrets.compare_digest(sent, self._wanted):
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b"This server needs its key.\n"})

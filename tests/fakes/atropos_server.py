"""A server that speaks to trainers as Atropos's does: batches by hand, restarts and failures on demand."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeAtropos:
    """Holds finished batches, the last first. Everything is in memory only."""

    def __init__(self) -> None:
        self.batches: list[Any] = []
        self.registrations: list[dict[str, Any]] = []
        self.calls: list[str] = []
        self.registered = False
        self.poisoned = False
        """Groups came before any trainer: registrations change nothing until it is reset."""
        self.failures: list[tuple[int, bytes]] = []
        """Answers to the next calls of /batch instead: a status and a body each."""
        self.torn = 0
        """The number of next answers of /batch that end in the middle."""
        self.reset_at = ""
        """The path at which each connection is reset in the middle of a 500."""
        self.waiting = 3
        """Groups that make no batch yet."""
        self.url = ""

    def restart(self) -> None:
        """Forget everything but what the next process would be sent."""
        self.registered = False

    def answer(self, path: str, body: Any) -> tuple[int, bytes]:
        self.calls.append(path)
        if path == "/register":
            self.registrations.append(body)
            self.registered = not self.poisoned
            return 200, b'{"uuid": 1}'
        if path == "/reset_data":
            self.poisoned = False
            return 200, b"Reset successful"
        if path == "/status":
            return 200, json.dumps({"current_step": 0, "queue_size": self.waiting}).encode()
        if not self.registered:
            return 200, json.dumps({"status": "error", "message": "not registered", "batch": []}).encode()
        if self.failures:
            return self.failures.pop(0)
        return 200, json.dumps({"batch": self.batches.pop() if self.batches else None}).encode()


@contextmanager
def fake_atropos(port: int = 0) -> Iterator[FakeAtropos]:
    """The server at a port of loopback, until the block ends."""
    fake = FakeAtropos()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply(None)

        def do_POST(self) -> None:
            self._reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _reply(self, body: Any) -> None:
            torn = self.path == "/batch" and fake.torn > 0
            fake.torn -= torn
            status, text = (200, b'{"ba') if torn else fake.answer(self.path, body)
            resets = self.path == fake.reset_at
            self.send_response(500 if resets else status)
            self.send_header("Content-Length", str(len(text) + torn))
            self.end_headers()
            if resets:
                at_once = struct.pack("ii", 1, 0)  # closing sends a reset
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
                self.wfile.close()
                self.rfile.close()
                self.connection.close()
                raise ConnectionResetError
            self.wfile.write(text)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Say nothing."""

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Print nothing of a connection that a test resets."""

    server = Quiet(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

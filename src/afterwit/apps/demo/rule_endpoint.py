"""The rule judge behind an OpenAI-compatible address, so that it stands where any judge's model would."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from afterwit.apps.demo import rule_judge

MODEL = "rules"


@contextmanager
def serving() -> Iterator[str]:
    """Serve on a free loopback port; gives the base URL, and closes the port when the context ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Door)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


class _Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        try:
            asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
            status, body = 200, _completion(rule_judge.answer(asked["messages"]))
        except (ValueError, KeyError, IndexError, TypeError) as error:
            status, body = (
                400,
                {"error": {"message": f"no chat request: {error}", "type": "invalid_request_error"}},
            )
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Say nothing: requests hold conversations."""


def _completion(said: str) -> dict[str, object]:
    message = {"role": "assistant", "content": said}
    return {
        "id": "chatcmpl-rules",
        "object": "chat.completion",
        "created": 0,
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }

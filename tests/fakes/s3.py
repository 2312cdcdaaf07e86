"""An S3 server on this machine, over real HTTP: moto's, which can be away, or refuse."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Thread
from typing import Any
from uuid import uuid4

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server

REFUSAL = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
Refuses = Callable[[str, str], tuple[int, str] | None]
"""Method and path of a request -> status and S3's code of a refusal; None: it is answered. Called by a thread
of the server, before it answers."""


class S3:
    """A server of S3 whose contents live as long as this process."""

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._refuses: Refuses = lambda method, path: None
        self.asked: list[str] = []
        """Methods and paths of all requests."""
        self._port = 0
        self._listen()
        self.endpoint = f"http://127.0.0.1:{self._port}"

    def _listen(self) -> None:
        self._server: BaseWSGIServer = make_server("127.0.0.1", self._port, self._answer, threaded=True)
        self._port = self._server.server_port
        Thread(target=self._server.serve_forever, daemon=True).start()

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self.asked.append(f"{method} {path}")
        refused = self._refuses(method, path)
        if refused is None:
            return self._moto(environ, start)
        status, code = refused
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start(f"{status} Refused", [("Content-Type", "application/xml")])
        return [] if method == "HEAD" else [REFUSAL.format(code=code, message="as the test says").encode()]

    def place(self) -> str:
        """The URL of an empty folder in a bucket of its own."""
        bucket = f"bucket-{uuid4().hex[:12]}"
        boto3.client("s3", endpoint_url=self.endpoint).create_bucket(Bucket=bucket)
        return f"s3://{bucket}/afterwit/versions"

    @contextmanager
    def away(self) -> Iterator[None]:
        """Nothing listens at the endpoint meanwhile."""
        self._server.shutdown()
        self._server.server_close()
        try:
            yield
        finally:
            self._listen()

    @contextmanager
    def refusing(self, refuses: Refuses) -> Iterator[None]:
        before, self._refuses = self._refuses, refuses
        try:
            yield
        finally:
            self._refuses = before


@cache
def s3() -> S3:
    """One for all tests of this process."""
    return S3()

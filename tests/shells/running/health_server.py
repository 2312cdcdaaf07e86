"""A program: `health_server.py PORT [answer|fail|hang]`, a model server for tests of whoever starts one."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, HTTPServer


class Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """`/health` is fine, `/pid` is the process, `/scratch` its temporary file, `/die` ends it.

        `/close` closes its port, and leaves it hanging.
        """
        body = (SCRATCH if self.path == "/scratch" else str(os.getpid())).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if self.path == "/die":
            self.wfile.flush()
            os._exit(7)
        if self.path == "/close":
            self.server.server_close()
            time.sleep(3600)


_, SCRATCH = tempfile.mkstemp()
print("loading the weights", flush=True)
if sys.argv[2] == "fail":
    print("CUDA is out of memory", flush=True)
    raise SystemExit(1)
if sys.argv[2] == "hang":
    time.sleep(3600)
HTTPServer(("127.0.0.1", int(sys.argv[1])), Health).serve_forever()

"""A program that is called as `vllm` is, `serve MODEL ... --port PORT`, and answers as was recorded."""

from __future__ import annotations

import sys
from pathlib import Path

from aiohttp import web

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.engines.vllm.recorded import Recorded

recorded = Recorded(Path(sys.argv[2]))
app = web.Application()
app.router.add_route("*", "/{path:.*}", recorded.answer)
web.run_app(app, host="127.0.0.1", port=int(sys.argv[sys.argv.index("--port") + 1]), print=None)

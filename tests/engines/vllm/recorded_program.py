"""A program that is called as `vllm` is, `serve MODEL ... --port PORT`, and answers as was recorded."""

from __future__ import annotations

import sys
from pathlib import Path

from aiohttp import web

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.engines.vllm.recorded import Recorded, chunk

recorded = Recorded(Path(sys.argv[2]))
words = [(index, -0.5) for index in range(60, 65)]  # of small vocabularies too
recorded.stream = chunk(*words[:4]) + chunk(words[4], end="length") + b"data: [DONE]\n\n"
app = web.Application()
app.router.add_route("*", "/{path:.*}", recorded.answer)
web.run_app(
    app, host="127.0.0.1", port=int(sys.argv[sys.argv.index("--port") + 1]), print=None, shutdown_timeout=1.0
)

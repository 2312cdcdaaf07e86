"""A gateway in front of a recorded vLLM server answers once, and prints what it had to import.

`python -m tests.engines.vllm.serving MODEL HOME`, from the root of the repository.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path

import aiohttp

from afterwit.config import load
from afterwit.running.logs import set_up
from afterwit.running.serve import Runtime
from tests.engines.vllm.recorded import Recorded, chunk, listening

HEAVY = ("torch", "transformers", "safetensors", "numpy", "peft")


async def main(model: Path, home: Path) -> None:
    set_up(logging.INFO)
    recorded = Recorded(model)
    recorded.stream = chunk((40, -0.5)) + chunk((41, -0.5), end="length")
    async with listening(recorded) as url:
        direct = {"model": str(model), "engine.kind": "vllm", "engine.url": url, "serve.port": 0}
        settings = load(home=home, direct=direct, environment={})
        body = {"model": "afterwit", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
        async with Runtime(settings, home, ("gateway", "judge")) as runtime:
            async with aiohttp.request("POST", f"{runtime.url}/chat/completions", json=body) as response:
                status = response.status
    print(json.dumps({"status": status, "heavy": [name for name in HEAVY if name in sys.modules]}))


asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))

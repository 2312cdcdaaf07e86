"""Rewrite the transcripts: `python -m tests.gateway.golden`. Read the difference before you commit it."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from afterwit.chat_format.render import Renderer
from tests.fakes.models import tiny_qwen3
from tests.gateway.golden import CASES, path_of, transcript


async def write() -> None:
    with tempfile.TemporaryDirectory() as made:
        renderer = Renderer.load(tiny_qwen3(Path(made) / "model"))
        for name in CASES:
            folder = Path(made) / name
            folder.mkdir()
            path_of(name).write_bytes(await transcript(name, folder, renderer))


asyncio.run(write())

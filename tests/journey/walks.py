"""`python -m tests.journey.walks`: how many files three walks through the house pass, by what they execute.

A chat request on the embedded engine, from socket to store; a judged turn, from the learner's claim to served
weights; and an Anthropic request through vLLM. Each is the second of its kind in a process, so that what is
loaded once does not count. `--files` prints them.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import aiohttp

import afterwit
from afterwit.build import store_of_home
from afterwit.config import load
from afterwit.engines.port import Engine
from afterwit.running.serve import Runtime
from afterwit.turn import SHARED
from tests.engines.vllm.recorded import Recorded, chunk, listening
from tests.fakes.judged_samples import a_sample, store_judged
from tests.fakes.models import tiny_qwen3
from tests.fakes.renderers import renderer_of
from tests.journey.conftest import until
from tests.learning.stage.learning import Place

ROOT = Path(afterwit.__file__).parent


class Walk:
    """The files of the product that ran, and the frames from the learner's step to the first tensor."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.frames: int | None = None
        self.on = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self.on or event != "call":
            return
        path = frame.f_code.co_filename
        if path.startswith(str(ROOT)):
            self.files.add(Path(path).relative_to(ROOT).as_posix())
            if self.frames is None and frame.f_code.co_name == "samples_of":
                self.frames = _frames_since_step(frame)


def _frames_since_step(frame: FrameType | None) -> int | None:
    """The product's frames between `Learn.step` and here."""
    count = 0
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(str(ROOT)):
            if code.co_name == "step" and code.co_filename.endswith("learning/stage.py"):
                return count
            count += 1
        frame = frame.f_back
    return None


@contextmanager
def walked(walk: Walk) -> Iterator[None]:
    walk.on = True
    yield
    walk.on = False


async def _post(url: str, path: str, body: dict[str, Any]) -> None:
    async with aiohttp.request("POST", f"{url}{path}", json=body) as response:
        assert response.status == 200, await response.text()
        await response.read()
    await asyncio.sleep(0.5)  # for writes that ride along with the next call of the store


async def chat(model: Path, home: Path, walk: Walk) -> None:
    settings = load(home=home, direct={"model": str(model), "serve.port": 0}, environment={})
    asked = {"role": "user", "content": "Read the file."}
    body = {"model": "afterwit", "messages": [asked], "max_tokens": 8, "stream": True}
    async with Runtime(settings, home, ("gateway",)) as runtime:
        assert runtime.url is not None
        await _post(runtime.url, "/chat/completions", body)
        with walked(walk):
            await _post(runtime.url, "/chat/completions", body)


async def messages(model: Path, home: Path, walk: Walk) -> None:
    recorded = Recorded(model)
    recorded.stream = chunk((40, -0.5)) + chunk((41, -0.5), end="length")
    asked = {"role": "user", "content": "hi"}
    body = {"model": "afterwit", "messages": [asked], "max_tokens": 2, "stream": True}
    async with listening(recorded) as url:
        direct = {"model": str(model), "engine.kind": "vllm", "engine.url": url, "serve.port": 0}
        settings = load(home=home, direct=direct, environment={})
        async with Runtime(settings, home, ("gateway",)) as runtime:
            assert runtime.url is not None
            await _post(runtime.url, "/messages", body)
            with walked(walk):
                await _post(runtime.url, "/messages", body)


async def learned(model: Path, home: Path, walk: Walk) -> None:
    """Two updates in this process; the second and its publication count."""
    place = Place(home=home, base=model)
    settings = load(home=home, direct={"model": str(model), "serve.port": 0}, environment={})
    renderer = renderer_of(model)
    async with Runtime(settings, home, ("gateway",)) as runtime:
        with store_of_home(home) as store:
            learn = place.learn(store)
            for traced in (False, True):
                numbers = range(2, 4) if traced else range(2)
                store_judged(store, [a_sample(renderer, number) for number in numbers])
                walk.on = traced
                await asyncio.to_thread(learn.run, lambda: False, follow=False)
                assert runtime.engine is not None
                await until(partial(_serves, runtime.engine, 2 if traced else 1))
                walk.on = False


async def _serves(engine: Engine, version: int) -> bool | None:
    return True if engine.live(SHARED) == version else None


def main() -> None:
    for name, way in (("chat, embedded", chat), ("judged turn", learned), ("messages, vLLM", messages)):
        walk = Walk()
        sys.settrace(walk)
        threading.settrace(walk)
        with tempfile.TemporaryDirectory() as folder:
            model = tiny_qwen3(Path(folder) / "model")
            home = Path(folder) / "home"
            home.mkdir(mode=0o700)
            asyncio.run(way(model, home, walk))
        sys.settrace(None)
        frames = "" if walk.frames is None else f", {walk.frames} frames from Learn.step to the first tensor"
        print(f"{name}: {len(walk.files)} files{frames}", flush=True)
        if "--files" in sys.argv:
            print("   " + "\n   ".join(sorted(walk.files)))


if __name__ == "__main__":
    main()

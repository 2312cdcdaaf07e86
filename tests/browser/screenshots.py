"""Writes the pictures of docs/page.md from the home of a demo: `make demo`, then `make screenshots`."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from afterwit.build import store_of_home
from afterwit.chat_format.render import Renderer
from afterwit.practice.table import lessons
from afterwit.version import Version
from tests.browser.chromium import chromium
from tests.browser.conftest import MODEL, ROOT
from tests.gateway.serving import serving

WIDTH = 1180


async def take(home: Path, out: Path) -> None:
    """The lessons, and the first turn of the one given most often; without the gateway's engine."""
    with tempfile.TemporaryDirectory() as name:
        shutil.copy(home / "store.db", name)
        with store_of_home(Path(name)) as store:
            said, served = max(lessons(store), key=lambda row: row.said), store.latest_published()
        shots = {"lessons": ("/ui", 900), "turn": (f"/ui/turns/{said.corrections[0].turn}", 1240)}
        renderer, model = Renderer.load(MODEL), f"{MODEL.parent.name} of the demo"

        async def roll_back(target: int) -> Version:
            raise AssertionError("no one presses a button")

        async with (
            serving(Path(name), renderer, model=model, roll_back=roll_back) as made,
            chromium() as browser,
        ):
            made.engine.version = served
            url = made.url.removesuffix("/v1") + "/ui"
            for shot, (path, height) in shots.items():
                page = await browser.new_page(viewport={"width": WIDTH, "height": height})
                await page.goto(f"{url}?token={made.app.gateway.token}")
                await page.goto(url.removesuffix("/ui") + path)
                await page.screenshot(path=out / f"page-{shot}.png")
                await page.close()


if __name__ == "__main__":
    asyncio.run(take(Path(sys.argv[1]), ROOT / "docs"))

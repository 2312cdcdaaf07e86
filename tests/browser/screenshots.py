"""Writes the pictures of docs/page.md: `python -m tests.browser.screenshots`, or `make screenshots`."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from afterwit.chat_format.render import Renderer
from tests.browser.chromium import chromium
from tests.browser.conftest import MODEL, ROOT
from tests.browser.world import world_in

SHOTS = {
    "overview": ("/ui", "light", 1180, 900),
    "turn": ("/ui/turns/01k0000033", "light", 1180, 1200),
}


async def take(out: Path) -> None:
    """All of them, over one made-up history."""
    with tempfile.TemporaryDirectory() as name:
        async with world_in(Path(name), Renderer.load(MODEL)) as world, chromium() as browser:
            for shot, (path, scheme, width, height) in SHOTS.items():
                viewport = {"width": width, "height": height}
                page = await browser.new_page(color_scheme=scheme, viewport=viewport)
                await page.goto(world.entrance)
                await page.goto(world.url + path)
                await page.screenshot(path=out / f"page-{shot}.png")
                await page.close()


if __name__ == "__main__":
    asyncio.run(take(ROOT / "docs"))

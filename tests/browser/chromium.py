"""The system's Chromium, which connects to the page alone."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, async_playwright

FLAGS = (
    "--no-sandbox",  # of tests only: containers often permit no sandbox, and the page is our own
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser without a window."""
    async with async_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = await playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        await browser.close()

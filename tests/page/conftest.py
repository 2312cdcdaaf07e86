from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.gateway.conftest import gateway, model, renderer
from tests.gateway.serving import Serving

__all__ = ["browser", "gateway", "model", "renderer"]


@pytest.fixture
async def browser(gateway: Serving) -> AsyncIterator[httpx.AsyncClient]:
    root = gateway.url.removesuffix("/v1")
    async with httpx.AsyncClient(base_url=root, headers={"accept": "text/html"}, verify=False) as client:
        assert (await client.get("/ui", params={"token": gateway.app.gateway.token})).status_code == 303
        yield client

"""Each server serves the tests' tiny model, with whole weights and with an adapter beside them."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.models import tiny_qwen3
from tests.servers.commands import COMMANDS
from tests.servers.server import Launch, Servers

pytestmark = [pytest.mark.engines, pytest.mark.slow]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_it_starts_answers_and_comes_back_at_its_port_after_a_crash(
    servers: Servers, name: str, tmp_path: Path
) -> None:
    server = servers.get(Launch(server=name, model=tiny_qwen3(tmp_path)))
    assert _said(server.url, tmp_path)
    server.kill()
    assert not server.is_running
    server.start()
    assert _said(server.url, tmp_path)


def test_a_server_that_cannot_start_says_why(servers: Servers, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ended before it was ready"):
        servers.get(Launch(server="sglang", model=tmp_path / "nothing"))


def _said(url: str, model: Path) -> str:
    body = json.dumps(
        {"model": str(model), "prompt": [5, 6, 7], "max_tokens": 4, "ignore_eos": True}
    ).encode()
    request = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        answer: dict[str, Any] = json.load(response)
    return str(answer["choices"][0]["text"])

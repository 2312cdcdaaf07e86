"""A `serve` that is refused leaves the home to any model."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from afterwit.config import Settings, load
from afterwit.errors import AfterwitError
from afterwit.home.home import remembered_model
from afterwit.running.serve import Runtime
from tests.fakes.models import tiny_qwen3

GATEWAY = ("gateway",)
ELSEWHERE = {"kind": "vllm", "url": "http://127.0.0.1:9", "patience_s": 0.1}
JUDGE = {"url": "http://127.0.0.1:9", "model": "m", "api_key_env": "NO_SUCH"}


def settings_of(model: Path, home: Path, port: int = 0, **sections: object) -> Settings:
    below = {"model": str(model), "serve": {"port": port}, **sections}
    return load(home=home, below=below, environment={})


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that another program has."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({}, "in use"),
        ({"serve": {"host": "0.0.0.0", "port": 0}}, "there is no API key"),
        ({"engine": ELSEWHERE, "serve": {"port": 0}}, "127.0.0.1:9"),
        ({"judge": JUDGE, "serve": {"port": 0}}, "NO_SUCH"),
    ],
    ids=["port", "key", "engine", "judge"],
)
async def test_a_start_that_is_refused_leaves_the_home_to_any_model(
    model: Path, tmp_path: Path, taken: int, sections: dict[str, object], words: str
) -> None:
    home, other = tmp_path / "home", tiny_qwen3(tmp_path / "other", seed=7, num_hidden_layers=1)
    with pytest.raises(AfterwitError, match=words):
        async with Runtime(settings_of(model, home, taken, **sections), home, ("gateway", "judge")):
            pass
    assert remembered_model(home) is None
    async with Runtime(settings_of(other, home), home, GATEWAY):
        assert remembered_model(home) == str(other)
    with pytest.raises(AfterwitError, match="belongs to another model"):
        async with Runtime(settings_of(model, home), home, GATEWAY):
            pass

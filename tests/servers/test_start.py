"""A server that cannot start raises with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from afterwit.engines.model_files import LINK
from tests.servers.server import Launch, Servers


@pytest.mark.engines
@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama_cpp", "sglang", "vllm"])
def test_its_log_is_part_of_the_error(servers: Servers, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "nothing"
    if name == "llama_cpp":  # Afterwit itself refuses a folder without a file for it
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / LINK).write_text("no model")
    with pytest.raises(RuntimeError, match=rf"{name} ended before it was ready(.|\n)*nothing"):
        servers.get(Launch(server=name, model=folder))

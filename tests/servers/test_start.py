"""A server that cannot start says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.commands import COMMANDS
from tests.servers.server import Launch, Servers


@pytest.mark.engines
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_its_log_is_part_of_the_error(servers: Servers, name: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=rf"{name} ended before it was ready(.|\n)*nothing"):
        servers.get(Launch(server=name, model=tmp_path / "nothing"))

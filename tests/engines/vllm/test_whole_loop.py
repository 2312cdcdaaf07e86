"""The whole loop on a real vLLM server, which serves the policy and, without its adapter, the judge."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.engines.live import CONTEXT, MODEL, lived
from tests.engines.vllm.servers import full
from tests.servers.server import Servers


@pytest.mark.engines
@pytest.mark.slow
def test_people_teach_their_preference_to_a_model_on_vllm(servers: Servers, tmp_path: Path) -> None:
    launch = full(MODEL)
    server = servers.get(replace(launch, flags=(*launch.flags, "--max-model-len", str(CONTEXT))))
    found = lived(tmp_path, {"kind": "vllm", "url": server.url})
    assert found.version >= 3
    assert found.before.preference <= 0.3
    assert found.after.preference >= found.before.preference + 0.4
    assert found.after.task_success >= 0.8

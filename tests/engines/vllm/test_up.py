"""`afterwit up` without a GPU: real servers for policy and judge, one killed, and nothing left at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.fakes.models import tiny_qwen3
from tests.servers import forked
from tests.servers.install import environment_of
from tests.shells.running.test_up import free_ports, running

pytestmark = [pytest.mark.engines, pytest.mark.slow, pytest.mark.timeout(1200)]
QUICK = {"HF_HUB_OFFLINE": "1", "TORCH_COMPILE_DISABLE": "1", "VLLM_API_KEY": "secret"}
KEY = {"Authorization": "Bearer secret"}


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=10).status_code == 200
    except httpx.HTTPError:
        return False


def until(holds: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    while not holds():
        assert process.poll() is None, log.read_text()
        time.sleep(0.5)


def test_vllm_servers_of_a_placement_serve_outlive_a_kill_and_end(tmp_path: Path) -> None:
    model = tiny_qwen3(tmp_path / "model", head_dim=32, num_attention_heads=2, num_key_value_heads=2)
    first, second, judge, port = free_ports(4)
    try:
        python = environment_of("vllm") / "bin" / "python"
    except FileNotFoundError as error:
        pytest.skip(str(error))
    words = [str(python), "-P", forked.__file__, "vllm.entrypoints.cli.main"]
    command = "[" + ", ".join(f'"{word}"' for word in words) + "]"
    pairs = [
        *("placement.device=cpu", "placement.policy=2", "placement.judge=1", "placement.context=2048"),
        *(f'engine.url=["http://127.0.0.1:{first}", "http://127.0.0.1:{second}"]', "engine.dtype=float32"),
        *(f"engine.command={command}", 'engine.flags=["--enforce-eager"]', f"serve.port={port}"),
        *(f"judge.url=http://127.0.0.1:{judge}/v1", "judge.model=judge", "learner.enabled=false"),
        'judge.body_omit=["seed"]',  # seeded requests end the worker of vLLM 0.32's CPU build
    ]
    flags = [word for pair in pairs for word in ("--set", pair)]
    line = [sys.executable, "-m", "afterwit", "up", str(model), "--home", str(tmp_path / "home"), *flags]
    log = tmp_path / "log"
    with log.open("wb") as out:
        up = subprocess.Popen(line, stdout=out, stderr=out, env={**os.environ, **QUICK})
    gateway = f"http://127.0.0.1:{port}"
    try:
        until(lambda: answers(f"{gateway}/readyz"), up, log)
        assert said(gateway)
        assert httpx.get(f"http://127.0.0.1:{judge}/v1/models").status_code == 401
        models = httpx.get(f"http://127.0.0.1:{judge}/v1/models", headers=KEY).json()["data"]
        assert [each["id"] for each in models] == ["judge"]
        os.kill(min(running("--port", str(second))), signal.SIGKILL)  # its workers end with it
        assert said(gateway)
        until(lambda: answers(f"http://127.0.0.1:{second}/health"), up, log)
        assert said(gateway)
    finally:
        up.terminate()
        assert up.wait() == 0
    assert [running("--port", str(each)) for each in (first, second, judge)] == [[], [], []]


def said(gateway: str) -> str:
    body = {"model": "afterwit", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5}
    answer = httpx.post(f"{gateway}/v1/chat/completions", json=body, timeout=300).raise_for_status()
    return str(answer.json()["id"])

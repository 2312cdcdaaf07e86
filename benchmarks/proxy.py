"""What does a recorded request cost beside LiteLLM's proxy, which hands requests on and records nothing?

Both get the same requests of 1 kB. LiteLLM stands in front of a server that knows one answer, as its users
run it: one worker, no database. The gateway's engine is a fake in its own process, so the hop to a server is
not in its figure. `make bench` installs LiteLLM into an environment of its own, `build/litellm`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import uvloop

from benchmarks.agent_text import agent_model
from benchmarks.asked import Asked
from benchmarks.gateway import CLIENTS, cpu, small_requests
from benchmarks.gateway_load import load
from benchmarks.gateway_servers import served
from benchmarks.measure import Row, at_most, interleaved, itself, noted, ratios

LITELLM = Path("build/litellm/bin/litellm")
START_S = 120
"""Seconds that it may take to start."""
ENOUGH = 200
"""Requests: a process's CPU time is told in hundredths of a second."""
QUIET = {"LITELLM_LOG": "ERROR", "LITELLM_TELEMETRY": "False", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


def rows(asked: Asked) -> Iterator[Row]:
    """G2p."""
    if not LITELLM.exists():
        raise SystemExit(f"{LITELLM} is missing: `make bench` installs it")
    count = ENOUGH if asked.quick else 5 * ENOUGH
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = agent_model(folder / "model")
        with (
            served("gateway", model, folder / "gateway") as ours,
            served("answer", model, folder / "answer") as answer,
            _litellm(folder, answer.port) as proxy,
        ):
            variants = {"floor": lambda: proxy.cpu(count), "gateway": lambda: cpu(ours, CLIENTS, 4 * count)}
            timed, note = interleaved(variants, runs=asked.runs, clock=itself)
    last = timed[-1]
    yield Row(
        id="G2p",
        what="CPU of a recorded request / LiteLLM's proxy, which records nothing",
        values=ratios(timed, "gateway"),
        target=at_most(0.25),
        peer="LiteLLM's proxy",
        note=noted(f"{last['gateway'] * 1e3:.2f} ms against {last['floor'] * 1e3:.2f}", note),
    )


@dataclass(frozen=True, slots=True)
class _Proxy:
    port: int
    process: psutil.Process

    def cpu(self, count: int) -> float:
        """CPU seconds of one request, in all its processes."""
        before = self._spent()
        uvloop.run(load(self.port, CLIENTS, small_requests(count)))
        return (self._spent() - before) / count

    def _spent(self) -> float:
        family = [self.process, *self.process.children(recursive=True)]
        return sum(times.user + times.system for times in (one.cpu_times() for one in family))


@contextmanager
def _litellm(folder: Path, upstream: int) -> Iterator[_Proxy]:
    """A running proxy in front of the server at a port."""
    target = {"model": "openai/tiny", "api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": "none"}
    config = folder / "litellm.yaml"
    config.write_text(json.dumps({"model_list": [{"model_name": "tiny", "litellm_params": target}]}))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [LITELLM.resolve(), "--config", config, "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "litellm.log").open("w") as log:
        process = subprocess.Popen(
            words, env=os.environ | QUIET, stdout=log, stderr=log, cwd=folder, start_new_session=True
        )
    try:
        _await(port, process)
        yield _Proxy(port, psutil.Process(process.pid))
    finally:
        process.terminate()
        process.wait(30)


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    began = time.monotonic()
    while process.poll() is None and time.monotonic() - began < START_S:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.5)
        else:
            return
    raise SystemExit("LiteLLM's proxy did not start")

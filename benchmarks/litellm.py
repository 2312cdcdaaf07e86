"""LiteLLM's proxy: installed once into an environment of its own, started in front of a server, and ended."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import uvloop

from benchmarks.gateway_load import load, small_requests

PLACE = Path("build/litellm")
WANTED = Path(__file__).with_suffix(".txt")
"""A frozen list, because pip takes longer than a measurement to find versions that fit each other. Made by
`uv pip compile --no-annotate --no-header` of `litellm[proxy]`."""
STAMP = PLACE / WANTED.name
"""The list that it was installed from."""
PROGRAM = PLACE / "bin" / "litellm"
START_S = 300
"""Seconds that it may take to start, on a busy machine."""
TAIL = 2000
"""Characters of its log that a failure shows."""
ENVIRONMENT = {
    "LITELLM_LOG": "ERROR",
    "LITELLM_TELEMETRY": "False",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # it listens on the loopback only
}


def installed() -> str | None:
    """Install it if it is absent. Why it cannot be; None if it is there."""
    if STAMP.exists() and STAMP.read_text() == WANTED.read_text():
        return None
    print(f"Installing LiteLLM's proxy into {PLACE}, once: a minute.", flush=True)
    try:
        venv.create(PLACE, with_pip=True, clear=True)
        pip = (PLACE / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        subprocess.run([*pip, "--no-deps", "--requirement", WANTED], check=True)
        shutil.copyfile(WANTED, STAMP)
    except (OSError, subprocess.CalledProcessError) as error:
        shutil.rmtree(PLACE, ignore_errors=True)
        return f"LiteLLM's proxy cannot be installed here: {error}"
    return None


@dataclass(frozen=True, slots=True)
class Proxy:
    port: int
    process: psutil.Process

    def cpu(self, clients: int, count: int) -> float:
        """CPU seconds of one request, in all its processes."""
        before = self._spent()
        uvloop.run(load(self.port, clients, small_requests(count)))
        return (self._spent() - before) / count

    def _spent(self) -> float:
        family = [self.process, *self.process.children(recursive=True)]
        return sum(times.user + times.system for times in (one.cpu_times() for one in family))


@contextmanager
def running(folder: Path, upstream: int) -> Iterator[Proxy]:
    """A proxy in front of the server at a port, as its users run it: one worker, no database."""
    target = {"model": "openai/tiny", "api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": "none"}
    config = folder / "litellm.yaml"
    config.write_text(json.dumps({"model_list": [{"model_name": "tiny", "litellm_params": target}]}))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [PROGRAM.absolute(), "--config", config, "--host", "127.0.0.1", "--port", str(port)]
    said = folder / "litellm.log"
    with said.open("w") as log:
        process = subprocess.Popen(
            words, env=os.environ | ENVIRONMENT, stdout=log, stderr=log, cwd=folder, start_new_session=True
        )
    try:
        _await(port, process, said)
        yield Proxy(port, psutil.Process(process.pid))
    finally:
        process.terminate()
        process.wait(30)


def _await(port: int, process: subprocess.Popen[bytes], said: Path) -> None:
    began = time.monotonic()
    while process.poll() is None and time.monotonic() - began < START_S:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.5)
        else:
            return
    raise SystemExit(f"LiteLLM's proxy did not start: {said.read_text(errors='replace')[-TAIL:]}")

"""`afterwit up` with a section `placement`: the servers on their GPUs, and that none is left running."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
import yaml

from afterwit.checkpoints.manifest import exclusive
from afterwit.config import Settings, load
from afterwit.engines.server.settings import SglangSettings, VllmSettings
from afterwit.errors import AlreadyRunning, SettingError
from afterwit.home.home import page_token
from afterwit.running import up
from tests.fakes.models import tiny_qwen3

PROGRAM = Path(__file__).parents[2] / "engines" / "vllm" / "recorded_program.py"
TWO = 'engine.url=["http://127.0.0.1:8000", "http://127.0.0.1:8001"]'
SPLIT = [
    *("engine.kind=vllm", TWO, "placement.policy=2", "placement.judge=1", "placement.learner=2"),
    *("judge.url=http://127.0.0.1:8010/v1", "judge.model=judge", "learner.processes=2"),
]


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine whose nvidia-smi lists five cards."""
    cards = "\n".join(f"{index}, GPU-{index}, 81559" for index in range(5))
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho '{cards}'\n")
    program.chmod(0o755)
    return {"PATH": str(tmp_path)}


def settings_of(model: Path, *pairs: str) -> Settings:
    return load(home=model, pairs=pairs, direct={"model": str(model)}, environment={})


def test_each_server_and_the_learner_get_the_cards_of_the_plan(
    model: Path, tmp_path: Path, machine: dict[str, str]
) -> None:
    servers, own = up.placed(settings_of(model, *SPLIT), tmp_path, machine)
    assert {each.name: each.command.environment["CUDA_VISIBLE_DEVICES"] for each in servers} == {
        "engine-1": "0",
        "engine-2": "1",
        "judge": "2",
    }
    assert own == {"CUDA_VISIBLE_DEVICES": "3,4", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert [each.log.name for each in servers] == ["engine-1.log", "engine-2.log", "judge.log"]
    judge = servers[2].command.arguments
    assert judge[judge.index("--port") + 1] == "8010"
    assert "--served-model-name" in judge
    assert servers[2].command.environment["VLLM_NO_USAGE_STATS"] == "1"


def test_one_server_over_two_cards_is_told_so(model: Path, tmp_path: Path, machine: dict[str, str]) -> None:
    pairs = ("engine.kind=vllm", "placement.policy=2", "placement.learner=1")
    (server,), _ = up.placed(settings_of(model, *pairs), tmp_path, machine)
    assert server.command.environment["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert server.command.arguments[-2:] == ("--tensor-parallel-size", "2")


def test_what_is_elsewhere_is_not_started(model: Path, tmp_path: Path, machine: dict[str, str]) -> None:
    pairs = ("engine.kind=vllm", "engine.url=http://gpu1:8000", "placement.policy=0", "placement.learner=1")
    servers, own = up.placed(settings_of(model, *pairs), tmp_path, machine)
    assert not servers
    assert own["CUDA_VISIBLE_DEVICES"] == "0"


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([*SPLIT, "placement.policy=4"], "the placement has 7 GPUs .* there are 5"),
        ([*SPLIT, "learner.processes=1"], "learner.processes is 1, but placement.learner is 2 GPUs"),
        (["engine.kind=vllm", "placement.policy=2", "engine.url=http://gpu/v1"], "needs it as http://127"),
        (["placement.policy=1"], "starts no server: choose one of vllm, sglang"),
    ],
)
def test_a_placement_that_does_not_fit_is_refused_with_the_numbers(
    model: Path, tmp_path: Path, machine: dict[str, str], pairs: list[str], said: str
) -> None:
    with pytest.raises(SettingError, match=said):
        up.placed(settings_of(model, *pairs), tmp_path, machine)


def test_a_server_that_it_starts_takes_weights_from_nobody_without_its_key(
    model: Path, tmp_path: Path
) -> None:
    environment: dict[str, str] = {}
    made = up.guarded(settings_of(model, *SPLIT), tmp_path, environment)
    key = environment["VLLM_API_KEY"]  # vLLM inherits it
    assert len(key) == 40
    assert isinstance(made.engine, VllmSettings)
    assert (made.engine.key(environment), made.judge.api_key_env) == (key, "VLLM_API_KEY")
    outside = settings_of(model, "engine.kind=vllm", "judge.url=http://judge.example/v1", "judge.model=j")
    assert up.guarded(outside, tmp_path, environment).judge.api_key_env is None


def test_sglang_reads_its_key_from_a_file_that_its_owner_alone_may_read(model: Path, tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    made = up.guarded(settings_of(model, "engine.kind=sglang"), tmp_path / "home", environment)
    assert isinstance(made.engine, SglangSettings)
    file = Path(made.engine.command[-1])
    assert yaml.safe_load(file.read_text()) == {"api-key": made.engine.key(environment)}
    assert file.stat().st_mode & 0o777 == 0o600
    assert made.engine.command[:-1] == ("python3", "-m", "sglang.launch_server", "--config")
    named = {"SGLANG_API_KEY": "0123 # mine"}
    up.guarded(settings_of(model, "engine.kind=sglang"), tmp_path / "home", named)
    assert yaml.safe_load(file.read_text()) == {"api-key": "0123 # mine"}
    own = settings_of(model, "engine.kind=sglang", 'engine.flags=["--config", "mine.yaml"]')
    assert up.guarded(own, tmp_path / "home", environment) is own


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_the_learner_has_the_key_of_a_teacher_that_it_starts(model: Path, tmp_path: Path, kind: str) -> None:
    teacher = ("learner.teacher=server", "learner.teacher_url=http://127.0.0.1:8020", "placement.teacher=1")
    made = up.guarded(settings_of(model, f"engine.kind={kind}", *teacher), tmp_path, {})
    assert made.learner.teacher_key_env == made.engine.api_key_env


@pytest.mark.parametrize("placement", [(), ("placement.device=cpu",)], ids=["one", "placed"])
def test_a_home_that_another_process_serves_is_refused_before_anything_is_started_or_written(
    model: Path, tmp_path: Path, placement: tuple[str, ...]
) -> None:
    home = tmp_path / "home"
    with (
        exclusive(home / ".learn.lock", purpose="serve", wait=False),
        pytest.raises(AlreadyRunning, match=f"may run the stage learn over {home}: process {os.getpid()}"),
    ):
        up.run(settings_of(model, "engine.kind=sglang", *placement), home)
    assert not list(home.glob("*.yaml"))  # the key of the server that runs
    assert not list(home.glob("*.log"))


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    found = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return found


async def health(port: int, home: Path) -> str:
    headers = {"x-api-key": page_token(home)}
    async with aiohttp.request("GET", f"http://127.0.0.1:{port}/readyz", headers=headers) as response:
        return await response.text()


async def answers(port: int, path: str = "/health") -> bool:
    try:
        async with aiohttp.request("GET", f"http://127.0.0.1:{port}{path}") as response:
            return response.status == 200
    except (aiohttp.ClientError, OSError):
        return False


def started(folder: Path, ports: Sequence[int], *more: str) -> tuple[subprocess.Popen[bytes], Path]:
    """`afterwit up` without a GPU: two servers and a judge, recorded in place of vLLM; what it prints."""
    model = tiny_qwen3(folder / "model")
    first, second, judge = (f"http://127.0.0.1:{port}" for port in ports)
    settings = [
        *("serve.port=0", "learner.enabled=false", f'engine.command=["{sys.executable}", "{PROGRAM}"]'),
        *(f'engine.url=["{first}", "{second}"]', f"judge.url={judge}/v1", "judge.model=judge"),
        *("placement.device=cpu", "placement.policy=2", "placement.judge=1"),
        *more,
    ]
    pairs = [word for pair in settings for word in ("--set", pair)]
    command = [sys.executable, "-m", "afterwit", "up", str(model), "--home", str(folder / "home"), *pairs]
    log = folder / "log"
    with log.open("wb") as out:
        return subprocess.Popen(command, stdout=out, stderr=out), log


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_all_servers_answer_before_it_serves_and_none_is_left_behind(
    tmp_path: Path, number: signal.Signals
) -> None:
    ports = free_ports(3)
    afterwit, log = started(tmp_path, ports)
    try:
        while b"point an agent at" not in log.read_bytes() and afterwit.poll() is None:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        assert all([await answers(port) for port in ports]), log.read_text()
    finally:
        afterwit.send_signal(number)
        code = await asyncio.to_thread(afterwit.wait)
    for port in ports:
        while await answers(port):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
    assert code == (0 if number is signal.SIGTERM else -signal.SIGKILL)
    logs = {path.name for path in (tmp_path / "home").glob("*.log")}
    assert logs == {"engine-1.log", "engine-2.log", "judge.log"}


@pytest.mark.slow
async def test_a_signal_in_the_first_moment_of_serving_ends_it_in_order(tmp_path: Path) -> None:
    *ports, gateway = free_ports(4)
    afterwit, log = started(tmp_path, ports, f"serve.port={gateway}")
    while not await answers(gateway, "/readyz") and afterwit.poll() is None:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    afterwit.terminate()
    assert await asyncio.to_thread(afterwit.wait) == 0, log.read_text()
    assert "stopping; Ctrl-C again stops at once" in log.read_text()


@pytest.mark.slow
async def test_readyz_says_that_a_server_cannot_be_started_again_until_it_is(tmp_path: Path) -> None:
    ports = free_ports(4)
    judge, gateway = ports[2:]
    afterwit, log = started(tmp_path, ports[:3], f"serve.port={gateway}")
    try:
        while b"point an agent at" not in log.read_bytes() and afterwit.poll() is None:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        said = tmp_path / "home" / "judge.log"
        said.unlink()
        said.mkdir()  # as if nothing could be written
        kill(str(judge))
        while "judge server cannot be started" not in await health(gateway, tmp_path / "home"):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        said.rmdir()
        while not await answers(judge):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.1)
        assert "judge server" not in await health(gateway, tmp_path / "home")
    finally:
        afterwit.terminate()
        await asyncio.to_thread(afterwit.wait)


def kill(*words: str) -> None:
    """The recorded server with these words on its command line."""
    (found,) = running(str(PROGRAM), *words)
    os.kill(found, signal.SIGKILL)


def running(*words: str) -> list[int]:
    """The processes with these words on their command lines."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if {*words} <= {*path.read_text().split("\0")}:
                found.append(int(path.parent.name))
    return found


@pytest.mark.slow
async def test_one_that_cannot_start_ends_the_others_and_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        *ports, judge = *free_ports(2), taken.getsockname()[1]
        afterwit, log = started(tmp_path, [*ports, judge])
        assert await asyncio.to_thread(afterwit.wait) == 2
    assert "the judge server ended before it answered" in log.read_text()
    assert not any([await answers(port) for port in ports])

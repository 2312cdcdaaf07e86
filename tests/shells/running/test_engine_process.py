"""A server that `afterwit up` starts: waited for, kept running, ended with whoever started it."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from afterwit.config import load
from afterwit.engines.server.process import EngineProcess
from afterwit.engines.server.server import ServerCommand
from afterwit.errors import SettingError
from afterwit.running import up
from tests.fakes.models import tiny_qwen3

HERE = Path(__file__).parent


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
    return found


def a_server(port: int, home: Path, how: str = "answer") -> EngineProcess:
    arguments = (sys.executable, str(HERE / "health_server.py"), str(port), how)
    command = ServerCommand(arguments=arguments)
    return EngineProcess(command, f"http://127.0.0.1:{port}", home, first_pause_s=0.01, look_s=0.05)


async def asked(port: int, path: str) -> str | None:
    """The server's answer; None without one."""
    try:
        async with aiohttp.request("GET", f"http://127.0.0.1:{port}{path}") as response:
            return await response.text()
    except (aiohttp.ClientError, OSError):
        return None


async def scratch(port: int) -> Path:
    """The temporary file that the server made."""
    said = await asked(port, "/scratch")
    assert said is not None
    return Path(said)


async def until(port: int, true: Callable[[str | None], bool]) -> None:
    """Wait until the server's answer is as wanted."""
    while not true(await asked(port, "/pid")):  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.02)


async def test_it_is_waited_for_started_again_when_it_dies_and_gone_at_the_end(
    port: int, tmp_path: Path
) -> None:
    server, shown = a_server(port, tmp_path), []
    try:
        await server.start(within_s=300, progress=shown.append)
        first, left = await asked(port, "/pid"), await scratch(port)
        assert left.exists()
        await asked(port, "/die")
        await until(port, lambda said: said not in (None, first))
        assert not left.exists(), "the dead server's temporary files"
        left = await scratch(port)
        assert server.log.stat().st_mode & 0o777 == 0o600
        assert server.log.read_text().count("loading the weights") == 2
    finally:
        await server.stop()
    assert await asked(port, "/health") is None
    assert not left.exists()


async def test_one_that_listens_no_more_and_does_not_end_is_ended_and_started_again(
    port: int, tmp_path: Path
) -> None:
    """As vLLM is left once its engine died."""
    server = a_server(port, tmp_path)
    try:
        await server.start(within_s=300, progress=lambda words: None)
        first = await asked(port, "/pid")
        closing = asyncio.create_task(asked(port, "/close"))
        await until(port, lambda said: said not in (None, first))
        await closing
    finally:
        await server.stop()


async def test_a_restart_that_fails_is_tried_again_until_it_succeeds(
    port: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = a_server(port, tmp_path)
    try:
        await server.start(within_s=300, progress=lambda words: None)
        first, left = await asked(port, "/pid"), await scratch(port)
        server.log.unlink()
        server.log.mkdir()  # as if nothing could be written
        await asked(port, "/die")
        while caplog.text.count("cannot be started") < 2:  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0.02)
        assert "the engine server cannot be started" in str(server.trouble)
        assert "Is a directory" in str(server.trouble)
        assert not left.parent.exists(), "temporary files of a server that did not start"
        server.log.rmdir()
        await until(port, lambda said: said not in (None, first))
        assert server.trouble is None
    finally:
        await server.stop()
    assert await asked(port, "/health") is None


async def test_one_that_is_stopped_while_it_cannot_be_started_leaves_nothing(
    port: int, tmp_path: Path
) -> None:
    server = a_server(port, tmp_path)
    await server.start(within_s=300, progress=lambda words: None)
    left = await scratch(port)
    server.log.unlink()
    server.log.mkdir()
    await asked(port, "/die")
    while "cannot be started" not in str(server.trouble):  # noqa: ASYNC110 - no event to wait for
        await asyncio.sleep(0.02)
    await server.stop()
    assert not left.parent.exists()


async def test_a_server_that_cannot_start_says_why_and_where_its_log_is(port: int, tmp_path: Path) -> None:
    server = a_server(port, tmp_path, "fail")
    with pytest.raises(SettingError, match=rf"ended before.*{server.log}(?s:.*)CUDA is out of memory"):
        await server.start(within_s=300, progress=lambda words: None)
    await server.stop()


async def test_a_program_that_is_not_there_is_said(port: int, tmp_path: Path) -> None:
    command = ServerCommand(arguments=("/nonexistent/vllm", "serve"))
    server = EngineProcess(command, f"http://127.0.0.1:{port}", tmp_path)
    with pytest.raises(
        SettingError, match=r"/nonexistent/vllm cannot be started: No such file.*engine\.command"
    ):
        await server.start(within_s=300, progress=lambda words: None)
    await server.stop()


async def test_a_server_that_loads_for_too_long_is_given_up_and_ended(port: int, tmp_path: Path) -> None:
    server = a_server(port, tmp_path, "hang")
    with pytest.raises(SettingError, match=r"did not answer within 0.01 s \(engine.start_s\)"):
        await server.start(within_s=0.01, progress=lambda words: None)
    await server.stop()


async def test_an_address_where_somebody_answers_is_left_alone(port: int, tmp_path: Path) -> None:
    one, other = a_server(port, tmp_path), a_server(port, tmp_path)
    await one.start(within_s=300, progress=lambda words: None)
    with pytest.raises(SettingError, match=r"answers at .* already: attach to it"):
        await other.start(within_s=300, progress=lambda words: None)
    await other.stop()
    assert await asked(port, "/health")
    await one.stop()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["engine.kind=embedded"], "starts no server: choose one of"),
        (
            ["engine.kind=vllm", 'engine.url=["http://127.0.0.1:8000", "http://127.0.0.1:8001"]'],
            "set placement.policy = 2",
        ),
        (["engine.kind=vllm", "learner.lora_rank=0"], "adapters need a rank above 0"),
        (["engine.kind=vllm", "engine.swap=whole"], "whole weights need 0"),
        (["engine.kind=vllm", "engine.url=http://gpu/v1"], "needs it as http://127.0.0.1:8000"),
    ],
)
def test_settings_that_cannot_go_together_are_refused_before_anything_starts(
    tmp_path: Path, settings: list[str], said: str
) -> None:
    with pytest.raises(SettingError, match=said):
        up.engine_process(load(home=tmp_path, pairs=settings, environment={}), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_afterwit_up_serves_in_front_of_its_server_and_leaves_nothing_behind(
    port: int, tmp_path: Path, number: signal.Signals
) -> None:
    afterwit, log = _up(port, tmp_path)
    try:
        while b"point an agent at" not in log.read_bytes() and afterwit.poll() is None:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        assert await asked(port, "/health") is not None, log.read_text()
    finally:
        afterwit.send_signal(number)
        code = await asyncio.to_thread(afterwit.wait)
    await until(port, lambda said: said is None)
    assert code == (0 if number is signal.SIGTERM else -signal.SIGKILL)


def _up(port: int, folder: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """`afterwit up` over a tiny model, with a recorded server in place of vLLM; and what it prints."""
    model, program = (
        tiny_qwen3(folder / "model"),
        HERE.parents[1] / "engines" / "vllm" / "recorded_program.py",
    )
    settings = [
        "serve.port=0",
        "learner.enabled=false",
        f"engine.url=http://127.0.0.1:{port}",
        f'engine.command=["{sys.executable}", "{program}"]',
    ]
    pairs = [word for pair in settings for word in ("--set", pair)]
    command = [sys.executable, "-m", "afterwit", "up", str(model), "--home", str(folder / "home"), *pairs]
    log = folder / "log"
    with log.open("wb") as out:
        return subprocess.Popen(command, stdout=out, stderr=out), log

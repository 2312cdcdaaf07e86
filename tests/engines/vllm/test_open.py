"""The inspection of a server, and its refusal, which names the flag that would help."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from afterwit.engines.kinds import open_engine, server_command
from afterwit.engines.port import Capabilities
from afterwit.engines.server.settings import Swap, VllmSettings
from afterwit.errors import SettingError
from afterwit.turn import Basis
from tests.engines.vllm.recorded import Recorded, listening

SCALE_OUT, LORA = "--enable-scale-out", "--enable-lora"
RUNTIME, DEV = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1", "VLLM_SERVER_DEV_MODE=1"
EXTENSION = "--worker-extension-cls afterwit_vllm.Reload"
SERVING = "tests.engines.vllm.serving"
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("swap", "lacks", "named"),
    [
        ("adapters", ["scale_out"], [SCALE_OUT]),
        ("adapters", ["lora"], [LORA]),
        ("adapters", ["runtime_lora"], [LORA, RUNTIME]),
        ("adapters", ["scale_out", "runtime_lora", "dev_mode"], [SCALE_OUT, LORA, RUNTIME]),
        ("whole", ["extension"], [EXTENSION, "PYTHONPATH="]),
        ("whole", ["dev_mode", "lora"], [DEV, EXTENSION, "PYTHONPATH="]),
    ],
)
async def test_every_flag_that_is_missing_is_named(
    qwen: Path, swap: Swap, lacks: list[str], named: list[str]
) -> None:
    async with listening(Recorded(qwen, **dict.fromkeys(lacks, False))) as url:
        with pytest.raises(SettingError) as refused:
            await open_engine(qwen, VllmSettings(url=url, swap=swap))
    said = str(refused.value)
    assert url in said
    everything = {SCALE_OUT, LORA, RUNTIME, DEV, EXTENSION, "PYTHONPATH="}
    assert {flag for flag in everything if flag in said} == set(named)


async def test_a_server_that_might_adapt_the_head_is_refused_with_the_layers_that_it_may_adapt(
    qwen: Path,
) -> None:
    recorded = Recorded(qwen)
    recorded.lora_config = {"target_modules": None}
    async with listening(recorded) as url:
        with pytest.raises(SettingError, match=r"--lora-target-modules down_proj gate_proj"):
            await open_engine(qwen, VllmSettings(url=url))
        recorded.lora_config = {"target_modules": ["down_proj"]}
        await (await open_engine(qwen, VllmSettings(url=url))).close()


async def test_a_server_that_keeps_its_weights_needs_no_flag_for_new_ones(qwen: Path) -> None:
    lacks = {"lora": False, "runtime_lora": False, "dev_mode": False, "extension": False}
    async with listening(Recorded(qwen, **lacks)) as url:
        engine = await open_engine(qwen, VllmSettings(url=url), takes_weights=False)
        can = engine.capabilities
        await engine.close()
    assert (can.adapters, can.base_weights, can.whole_weights) == (False, True, False)


@pytest.mark.parametrize("version", ["0.9.2", "0.31.4"])
async def test_a_version_that_is_too_old_is_refused(qwen: Path, version: str) -> None:
    recorded = Recorded(qwen)
    recorded.version = version
    async with listening(recorded) as url:
        with pytest.raises(SettingError, match=f"vLLM {re.escape(version)}: version 0.32 or newer"):
            await open_engine(qwen, VllmSettings(url=url))


async def test_another_model_is_refused_with_both_names_and_hashes(
    qwen: Path, newer_qwen: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(qwen, tmp_path / "other")
    shutil.copy(newer_qwen / "model.safetensors", other)
    async with listening(Recorded(other)) as url:
        pattern = rf"serves {other} \([0-9a-f]{{12}}\), but the model here is {qwen} \([0-9a-f]{{12}}\)"
        with pytest.raises(SettingError, match=pattern):
            await open_engine(qwen, VllmSettings(url=url))


async def test_another_tokenizer_is_refused(qwen: Path, llama: Path) -> None:
    recorded = Recorded(llama)
    recorded.model = "some/other-model"
    async with listening(recorded) as url:
        with pytest.raises(SettingError, match="some/other-model, whose tokenizer is not that of"):
            await open_engine(qwen, VllmSettings(url=url))


async def test_nobody_at_the_address_is_said_with_what_to_do(qwen: Path) -> None:
    settings = VllmSettings(url="http://127.0.0.1:9", patience_s=0.01)
    with pytest.raises(SettingError, match=r"no vLLM server answered at http://127.0.0.1:9.*afterwit up"):
        await open_engine(qwen, settings)


@pytest.mark.parametrize(("raw", "basis"), [(False, Basis.PROCESSED), (True, Basis.RAW)])
async def test_the_basis_is_found_by_comparing_two_temperatures(qwen: Path, raw: bool, basis: Basis) -> None:
    can = await _capabilities(Recorded(qwen), raw=raw)
    assert can.basis is basis


@pytest.mark.parametrize("swap", ["adapters", "whole"])
async def test_what_the_engine_can_do_follows_from_the_way_of_its_swaps(qwen: Path, swap: Swap) -> None:
    can = await _capabilities(Recorded(qwen), swap=swap)
    adapters = swap == "adapters"
    assert (can.adapters, can.base_weights, can.whole_weights) == (adapters, adapters, not adapters)
    assert all(not getattr(can, name) or name in can.remedies for name in ("adapters", "whole_weights"))


@pytest.mark.parametrize(("widest", "told"), [(1000, 100), (20, 20), (0, 0)])
async def test_how_wide_rows_of_the_teacher_may_be_is_what_the_server_allows(
    qwen: Path, widest: int, told: int
) -> None:
    recorded = Recorded(qwen)
    recorded.widest = widest
    assert (await _capabilities(recorded)).scored_ids == told


async def _capabilities(recorded: Recorded, *, raw: bool = False, swap: Swap = "adapters") -> Capabilities:
    from afterwit.engines.server.client import ServerClient
    from afterwit.engines.vllm.server import inspect

    recorded.raw = raw
    async with listening(recorded) as url:
        client = ServerClient(url, key=None, silence_s=10)
        fit = await inspect(client, Path(recorded.model), swap)
        await client.close()
    return fit.capabilities


def test_the_command_has_every_flag_that_the_engine_asks_for(qwen: Path) -> None:
    adapters = server_command(qwen, VllmSettings(), host="127.0.0.1", port=8000, lora_rank=12)
    line = " ".join(adapters.arguments)
    assert line.startswith(f"vllm serve {qwen} --host 127.0.0.1 --port 8000 --dtype float32")
    assert f"{SCALE_OUT} " in line
    assert f"{LORA} --max-lora-rank 16" in line
    assert adapters.environment == {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_NO_USAGE_STATS": "1"}
    settings = VllmSettings(swap="whole", command=("/opt/vllm",), flags=("--gpu-memory-utilization", "0.8"))
    whole = server_command(qwen, settings, host="127.0.0.1", port=8000, lora_rank=0)
    assert " ".join(whole.arguments).startswith("/opt/vllm serve")
    assert EXTENSION in " ".join(whole.arguments)
    assert whole.arguments[-2:] == ("--gpu-memory-utilization", "0.8")
    assert (Path(whole.environment["PYTHONPATH"]) / "afterwit_vllm.py").is_file()
    with pytest.raises(SettingError, match="lora_rank is 1000"):
        server_command(qwen, VllmSettings(), host="127.0.0.1", port=8000, lora_rank=1000)


def test_the_gateway_in_front_of_a_server_imports_no_torch(qwen: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", SERVING, str(qwen), str(tmp_path / "home")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"status": 200, "heavy": []}


@pytest.mark.parametrize(
    ("path", "sent", "status"),
    [
        ("/collective_rpc", None, 401),
        ("/pause", "Bearer other", 401),
        ("/inference/v1/generate", None, 401),
        ("/collective_rpc", "Bearer secret", 200),
        ("/health", None, 200),
        ("/metrics", None, 200),
    ],
)
async def test_every_path_of_a_server_that_takes_whole_weights_needs_its_key(
    qwen: Path, monkeypatch: pytest.MonkeyPatch, path: str, sent: str | None, status: int
) -> None:
    flags = server_command(qwen, VllmSettings(swap="whole"), host="h", port=1, lora_rank=0)
    module, name = flags.arguments[flags.arguments.index("--middleware") + 1].split(".")
    file = Path(flags.environment["PYTHONPATH"], f"{module}.py")
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    guard = runpy.run_path(str(file))[name]

    async def server(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(status_code=200)(scope, receive, send)

    transport = httpx.ASGITransport(app=guard(server))
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        headers = {} if sent is None else {"Authorization": sent}
        assert (await client.post(path, headers=headers)).status_code == status

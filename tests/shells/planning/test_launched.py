"""The inspection of each server accepts the flags with which `up` starts it."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from afterwit import recipes
from afterwit.build import teacher_server
from afterwit.config import Settings, load
from afterwit.engines.kinds import SERVERS
from afterwit.engines.server.client import ServerClient
from afterwit.engines.server.settings import ServerSettings
from afterwit.engines.sglang.server import inspect as inspect_sglang
from afterwit.engines.vllm.server import inspect as inspect_vllm
from afterwit.errors import SettingError
from afterwit.planning.gpus import CPU, Gpu, named_gpus
from afterwit.planning.memory import SPARE
from afterwit.planning.plan import models_of, parts_of, plan
from afterwit.planning.report import report
from afterwit.planning.servers import MOST, SHARE, lone_flags, servers_of
from afterwit.running import up
from tests.engines.sglang import recorded as sglang
from tests.engines.vllm import recorded as vllm
from tests.engines.vllm.scoring import Scoring
from tests.products import diagonal

KINDS = [kind for kind in SERVERS if kind != "llama_cpp"]
"""Those that serve model folders: llama.cpp serves a file."""
ROOT = Path(__file__).parents[3]
INSPECTIONS = {"vllm": inspect_vllm, "sglang": inspect_sglang}
BY_ITSELF = 20
"""Ids that vLLM returns for a position without `--max-logprobs`."""
EIGHT = named_gpus("80GB", 8)


def started(
    model: Path, words: Sequence[str], environment: Mapping[str, str], *, on_gpu: bool = True
) -> AbstractAsyncContextManager[str]:
    """The address of a server that answers as one started so. `on_gpu`: vLLM has its second model runner."""

    def given(flag: str) -> list[str]:
        if flag not in words:
            return []
        rest = [*words[words.index(flag) + 1 :], "--"]
        return rest[: next(place for place, word in enumerate(rest) if word.startswith("--"))]

    if "--model-path" in words:
        return sglang.listening(
            sglang.Recorded(
                model,
                enable_lora="--enable-lora" in words,
                lora_target_modules=given("--lora-target-modules"),
                enable_priority_scheduling="--enable-priority-scheduling" in words,
                incremental_streaming_output="--incremental-streaming-output" in words,
            )
        )
    server = Scoring(model, scores_given=on_gpu)
    server.widest = int(*given("--max-logprobs") or [BY_ITSELF])
    server.lora_config = {"target_modules": given("--lora-target-modules") or None}
    server.has = {
        "scale_out": "--enable-scale-out" in words,
        "lora": "--enable-lora" in words,
        "runtime_lora": environment.get("VLLM_ALLOW_RUNTIME_LORA_UPDATING") == "1",
        "dev_mode": environment.get("VLLM_SERVER_DEV_MODE") == "1",
        "extension": "--worker-extension-cls" in words and "PYTHONPATH" in environment,
    }
    return vllm.listening(server)


def settings_of(model: Path, *pairs: str, recipe: str | None = None) -> Settings:
    return load(
        home=model.parent,
        pairs=pairs,
        direct={"model": str(model)},
        recipe=recipe,
        environment={},
        unless=up.SERVER,
    )


async def inspected(settings: Settings, model: Path, url: str) -> None:
    """As `serve` looks at the engine's server. SettingError if it is refused."""
    engine = settings.engine
    assert isinstance(engine, ServerSettings)
    client = ServerClient(url, key=None, silence_s=60.0)
    try:
        await INSPECTIONS[settings.engine.kind](client, model, engine.swap)
    finally:
        await client.close()


async def asked_to_teach(settings: Settings, model: Path, url: str) -> None:
    """As the learner opens its teacher. SettingError if the server is refused."""
    own = settings.model_copy(update={"learner": replace(settings.learner, teacher_url=url)})
    teacher = teacher_server(own, model)
    assert teacher is not None
    await asyncio.to_thread(teacher.open)


@pytest.mark.parametrize(("recipe", "kind"), diagonal(recipes.machines(), [None, *KINDS]))
async def test_each_server_of_a_published_split_is_found_fit(
    recipe: str, kind: str | None, model: Path
) -> None:
    """With the servers that it names, and with either kind."""
    settings = settings_of(model, *([f"engine.kind={kind}"] if kind else []), recipe=recipe)
    models = models_of(settings, model.parent)
    servers = list(servers_of(plan(settings, models, EIGHT[: settings.placement.gpus])))
    printed = report(settings, model.parent, EIGHT[: settings.placement.gpus])
    for server in servers:
        words, environment = server.command.arguments, server.command.environment
        assert shlex.join(words) in printed
        async with started(model, words, environment) as url:
            if server.name.startswith("engine"):
                await inspected(settings, model, url)
            elif server.name == "teacher":
                await asked_to_teach(settings, model, url)
            else:
                assert words[words.index("--served-model-name") + 1] == settings.judge.model
    assert {server.name.partition("-")[0] for server in servers} >= {"engine", "judge"}


async def test_the_published_teacher_scores_the_students_ids_on_any_device(model: Path) -> None:
    """vLLM does so on a GPU alone; the error names what would do."""
    for kind, refused in ((None, False), ("vllm", True)):
        pairs = [f"engine.kind={kind}"] if kind else []
        settings = settings_of(model, *pairs, recipe="8gpu-topk-select")
        made = plan(settings, models_of(settings, model.parent), EIGHT)
        (teacher,) = [each for each in servers_of(made) if each.name == "teacher"]
        command = teacher.command
        async with started(model, command.arguments, command.environment, on_gpu=False) as url:
            if refused:
                with pytest.raises(SettingError, match='subset = "teacher" or "overlap"'):
                    await asked_to_teach(settings, model, url)
            else:
                await asked_to_teach(settings, model, url)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("swap", ["adapters", "whole"])
async def test_the_server_of_a_bare_up_is_found_fit(
    kind: str, swap: str, model: Path, tmp_path: Path
) -> None:
    rank = 16 if swap == "adapters" else 0
    pairs = (f"engine.kind={kind}", f"engine.swap={swap}", f"learner.lora_rank={rank}")
    settings = settings_of(model, *pairs)
    command = up.engine_process(settings, tmp_path).command
    async with started(model, command.arguments, command.environment) as url:
        await inspected(settings, model, url)


def of_systemd() -> tuple[list[str], dict[str, str]]:
    text = (ROOT / "deploy/systemd/afterwit-engine@.service").read_text().replace("\\\n", " ")
    lines = [line.split("=", 1) for line in text.splitlines() if "=" in line]
    (command,) = (words for name, words in lines if name == "ExecStart")
    variables = " ".join(words for name, words in lines if name == "Environment")
    return shlex.split(command), dict(each.split("=", 1) for each in variables.split())


def of_kubernetes() -> tuple[list[str], dict[str, str]]:
    documents = yaml.safe_load_all((ROOT / "deploy/kubernetes/serving.yaml").read_text())
    containers = [
        container
        for document in documents
        for container in document["spec"].get("template", {}).get("spec", {}).get("containers", ())
    ]
    (engine,) = [each for each in containers if each["name"] == "engine"]
    words = [part for word in engine["command"] for part in word.split("=", 1)]
    return words, {each["name"]: each["value"] for each in engine["env"]}


@pytest.mark.parametrize("written", [of_systemd, of_kubernetes])
async def test_the_server_of_a_deployment_is_found_fit(written: object, model: Path) -> None:
    words, environment = written()  # type: ignore[operator]
    async with started(model, words, environment) as url:
        await inspected(settings_of(model), model, url)


def test_the_kind_of_the_settings_is_started_and_vllm_without_one(model: Path, tmp_path: Path) -> None:
    def kind(*pairs: str, recipe: str | None = None) -> str:
        found = load(home=tmp_path, pairs=pairs, recipe=recipe, environment={}, unless=up.SERVER).engine.kind
        return str(found)

    assert (kind(), kind(recipe="8gpu-topk-select")) == ("vllm", "sglang")
    assert kind("engine.kind=vllm", recipe="8gpu-topk-select") == "vllm"
    (tmp_path / "config.toml").write_text('[engine]\nkind = "sglang"\n')
    assert kind() == "sglang"


def flags_of(model: Path, gpu: Gpu, *pairs: str) -> dict[str, str]:
    """Of the server of a bare `up` on a gpu."""
    settings = settings_of(model, *pairs)
    words = lone_flags(settings, models_of(settings, model.parent), gpu)
    return dict(zip(words[::2], words[1::2], strict=True))


def test_a_lone_server_on_the_cpu_keeps_a_sixteenth_of_the_memory_or_one_request(model: Path) -> None:
    """vLLM by itself takes .92 of all memory, and fails where other programs use it."""
    memory = Gpu(name=CPU, size=16 * 10**9)
    assert int(flags_of(model, memory)["--kv-cache-memory-bytes"]) == int(SPARE * 10**9)
    small = flags_of(model, Gpu(name=CPU, size=10**6))
    shape = models_of(settings_of(model), model.parent).served.shape
    assert int(small["--kv-cache-memory-bytes"]) == int(SPARE * 4 * shape.kept_per_token * shape.context)
    sglang_flags = flags_of(model, memory, "engine.kind=sglang")
    assert sglang_flags["--device"] == "cpu"
    assert int(sglang_flags["--max-total-tokens"]) == 10**9 // (4 * shape.kept_per_token)


def test_a_lone_server_on_a_gpu_leaves_what_the_learner_is_counted_to_take(model: Path) -> None:
    settings = settings_of(model, "learner.max_tokens=512")
    models = models_of(settings, model.parent)
    large = Gpu(name="0", size=8 * 10**9)
    policy, learner = parts_of(settings, models, (large,))
    for kind, flag in SHARE.items():
        share = float(flags_of(model, large, f"engine.kind={kind}", "learner.max_tokens=512")[flag])
        assert share == pytest.approx(min(1 - learner.needs / large.size, MOST), abs=0.01)
    tight = Gpu(name="0", size=learner.needs)
    share = float(flags_of(model, tight, "learner.max_tokens=512")[SHARE["vllm"]])
    assert share == pytest.approx(policy.needs / tight.size, abs=0.01)
    assert flags_of(model, large, "learner.enabled=false") == {}


def test_the_flags_of_the_settings_come_last(model: Path, tmp_path: Path) -> None:
    settings = settings_of(model, 'engine.flags=["--kv-cache-memory-bytes", "7"]')
    assert up.engine_process(settings, tmp_path).command.arguments[-2:] == ("--kv-cache-memory-bytes", "7")

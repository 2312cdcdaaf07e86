"""How each server is started for a test: on two CPU cores, with a small model, in little memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers import forked, llama_cpp
from tests.servers.install import environment_of

CONTEXT = 2048
"""Tokens of prompt and response together."""
LORA_RANK = 16
"""The largest rank of an adapter that fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A server's command line, its environment variables, and the path that answers 200 when it is ready."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    ready: str = "/health"


def _vllm(model: Path, port: int, flags: tuple[str, ...]) -> Command:
    program = environment_of("vllm") / "bin" / "python"
    arguments = f"""{program} -P {forked.__file__} vllm.entrypoints.cli.main serve {model} --host 127.0.0.1
        --port {port} --dtype float32 --enforce-eager --max-model-len {CONTEXT}"""
    environment = {
        "HF_HUB_OFFLINE": "1",
        "TORCH_COMPILE_DISABLE": "1",  # else the first request waits for a compiler
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    return Command(arguments=(*arguments.split(), *flags), environment=environment)


def _sglang(model: Path, port: int, flags: tuple[str, ...]) -> Command:
    program = environment_of("sglang") / "bin" / "python"
    arguments = f"""{program} -P {forked.__file__} sglang.launch_server --model-path {model} --host 127.0.0.1
        --port {port} --device cpu --dtype float32 --attention-backend torch_native --sampling-backend pytorch
        --disable-overlap-schedule --disable-cuda-graph --mem-fraction-static 0.2 --max-total-tokens 16384
        --context-length {CONTEXT} --skip-server-warmup"""
    environment = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "SGLANG_USE_CPU_ENGINE": "1"}
    return Command(arguments=(*arguments.split(), *flags), environment=environment)


def _atropos(model: Path, port: int, flags: tuple[str, ...]) -> Command:
    """It serves no model: it stands between environments and a trainer."""
    program = environment_of("atropos") / "bin" / "python"
    arguments = f"{program} -P -m atroposlib.cli.run_api --host 127.0.0.1 --port {port}"
    return Command(arguments=(*arguments.split(), *flags), ready="/")


def _llama_cpp(model: Path, port: int, flags: tuple[str, ...]) -> Command:
    from tests.engines.llama_cpp.servers import arguments

    llama_cpp.require()
    return Command(arguments=(*arguments(model, port), *flags))


COMMANDS: Mapping[str, Callable[[Path, int, tuple[str, ...]], Command]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "atropos": _atropos,
    "llama_cpp": _llama_cpp,
}
"""By server: the command line that serves a model folder at a port, with further flags at its end."""

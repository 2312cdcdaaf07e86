"""The servers of a plan: each one's GPUs and command line, by the engines' own launchers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import urlsplit

from afterwit.config import Settings
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.kinds import SERVERS, server_command
from afterwit.engines.server.server import ServerCommand
from afterwit.engines.server.settings import ServerSettings, VllmSettings
from afterwit.engines.teacher import teacher_top_k
from afterwit.engines.vllm.server import QUIET, SAMPLES
from afterwit.errors import SettingError
from afterwit.planning.gpus import CPU, Gpu, visible
from afterwit.planning.memory import KEYS_VALUES, SPARE, WIDTHS, Model
from afterwit.planning.plan import Models, Part, Plan, parts_of

CONTEXT = {"vllm": "--max-model-len", "sglang": "--context-length"}
OVER = {"vllm": "--tensor-parallel-size", "sglang": "--tp-size"}
COPIES = {"vllm": "--data-parallel-size", "sglang": "--dp-size"}
SHARE = {"vllm": "--gpu-memory-utilization", "sglang": "--mem-fraction-static"}
MOST = 0.9
"""The largest share of a GPU that a server gets."""
CPU_CACHE = 16
"""The part of the machine's memory that a lone server on the CPU uses for keys and values, unless one request
needs more: with 16 GB, those of 9,000 tokens of Qwen3-0.6B in bfloat16."""


class PlacedServer(NamedTuple):
    """A server on its GPUs, which the command names too."""

    name: str
    """engine, or engine-1, engine-2 of several; judge; teacher."""
    url: str
    """Its address without a path."""
    command: ServerCommand


def servers_of(plan: Plan) -> Iterator[PlacedServer]:
    """Of every part that has GPUs: the servers at `engine.url`, judge and teacher. SettingError if an address
    has no port.

    Those of the engine are left out if the model's weights are not here: their flags follow from the names.
    """
    settings, models = plan.settings, plan.models
    engine, policy, learner = settings.engine, plan.part("policy"), plan.part("learner")
    if policy is not None and isinstance(engine, ServerSettings) and models.served.here:
        more = _sizes(settings, models.served, policy, copies=1)
        if (
            engine.kind in SHARE
            and learner is not None
            and any(gpu.name != CPU for gpu in {*learner.gpus} & {*policy.gpus})
        ):
            more = (*more, SHARE[engine.kind], f"{_left(policy, learner):.2f}")
        folder, rank = models.served.folder.resolve(), settings.learner.lora_rank
        for index, url in enumerate(engine.urls):
            host, port = address("engine.url", url)
            launch = server_command(folder, engine, host=host, port=port, lora_rank=rank, more=more)
            own = visible(policy.gpus[index * policy.over : (index + 1) * policy.over])
            name = "engine" if len(engine.urls) == 1 else f"engine-{index + 1}"
            command = replace(launch, environment=own | dict(launch.environment))
            yield PlacedServer(name, f"http://{host}:{port}", command)
    if (judge := plan.part("judge")) is not None:
        named = ("--served-model-name", settings.judge.model or models.judge.name)
        yield _server(settings, models.judge, judge, "judge.url", settings.judge.url or "", named)
    if (teacher := plan.part("teacher")) is not None:
        scores = (SAMPLES, "--max-logprobs", str(teacher_top_k(settings.objective)))
        flags, url = scores if _kind(settings) == "vllm" else (), settings.learner.teacher_url or ""
        yield _server(settings, models.teacher, teacher, "learner.teacher_url", url, flags)


def _server(
    settings: Settings, model: Model, part: Part, setting: str, url: str, flags: Sequence[str]
) -> PlacedServer:
    """Of the engine's kind, or vLLM."""
    kind, (host, port) = _kind(settings), address(setting, url)
    program = settings.engine.command if hasattr(settings.engine, "command") else VllmSettings().command
    start = ("serve", model.name) if kind == "vllm" else ("--model-path", model.name)
    sizes = _sizes(settings, model, part, copies=part.servers)
    command = ServerCommand(
        arguments=(*program, *start, "--host", host, "--port", str(port), *sizes, *flags),
        environment=visible(part.gpus) | (QUIET if kind == "vllm" else {}),
    )
    return PlacedServer(part.name, f"http://{host}:{port}", command)


def lone_flags(settings: Settings, models: Models, gpu: Gpu) -> tuple[str, ...]:
    """Flags of the one server of a machine without a section `placement`: it leaves room for the learner.

    By default vLLM and SGLang take nearly all of a GPU, or of the machine's memory.
    """
    if _kind(settings) not in SHARE:
        return ()
    (policy, *others) = parts_of(settings, models, (gpu,))
    memory, served = policy.memory, models.served
    if gpu.name == CPU:
        cache = max(memory[KEYS_VALUES], gpu.size // CPU_CACHE)
        policy = replace(policy, memory=memory | {KEYS_VALUES: cache})
        return _sizes(settings, served, policy, copies=1)
    if not others:
        return ()
    share = _left(policy, others[0])
    free = gpu.size * share / SPARE - memory["weights"] - memory["adapters"]
    room = free // (memory[KEYS_VALUES] or 1) * min(settings.placement.context, served.shape.context)
    sizes = () if room >= served.shape.context else _sizes(settings, served, policy, copies=1)
    return (*sizes, SHARE[_kind(settings)], f"{share:.2f}")


def own_gpus(plan: Plan) -> tuple[Gpu, ...]:
    """The GPUs of Afterwit's own processes: the learner's, whose ranks take the first ones, then that of an
    embedded engine."""
    embedded = isinstance(plan.settings.engine, EmbeddedSettings)
    mine = (plan.part("learner"), plan.part("policy") if embedded else None)
    return tuple(dict.fromkeys(gpu for part in mine if part is not None for gpu in part.gpus))


def address(setting: str, url: str) -> tuple[str, int]:
    """Host and port. SettingError, with the setting's name, if a server cannot be started there."""
    try:
        parts = urlsplit(url)
        if parts.hostname is not None and parts.port is not None:
            return parts.hostname, parts.port
    except ValueError:
        pass  # the port is not a number
    raise SettingError(f"{setting} is {url}: to start its server it needs a port, as http://127.0.0.1:8000")


def _kind(settings: Settings) -> str:
    return settings.engine.kind if settings.engine.kind in SERVERS else "vllm"


def _left(policy: Part, learner: Part) -> float:
    """The share of a GPU that the learner leaves, and at least what the policy needs."""
    size = policy.gpus[0].size
    return min(max(policy.needs, size - learner.needs) / size, MOST)


def _sizes(settings: Settings, model: Model, part: Part, *, copies: int) -> tuple[str, ...]:
    """On the CPU all parts share one memory, most of which a server would take: it gets what is counted."""
    kind, context, cache = _kind(settings), settings.placement.context, part.memory[KEYS_VALUES]
    if kind not in SHARE:  # its own settings name its sizes
        return ()
    cpu: tuple[str, ...] = ()
    if part.gpus[0].name == CPU and kind == "vllm":
        cpu = ("--kv-cache-memory-bytes", str(int(SPARE * cache)))
    elif part.gpus[0].name == CPU:
        own = settings.engine.dtype if part.name == "policy" else "auto"
        token = WIDTHS[model.dtype if own == "auto" else own] * model.shape.kept_per_token
        cpu = ("--device", "cpu", "--max-total-tokens", str(cache // token))
    return (
        *((CONTEXT[kind], str(context)) if context < model.shape.context else ()),
        *((OVER[kind], str(part.over)) if part.over > 1 else ()),
        *((COPIES[kind], str(copies)) if copies > 1 else ()),
        *cpu,
    )

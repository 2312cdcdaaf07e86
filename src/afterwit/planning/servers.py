"""The servers of a plan: each one's GPUs and command line, by the engines' own launchers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from afterwit.config import Settings
from afterwit.engines.kinds import LAUNCHERS
from afterwit.engines.server.server import ServerCommand
from afterwit.engines.server.settings import ServerSettings, VllmSettings
from afterwit.engines.teacher import teacher_top_k
from afterwit.engines.vllm.inspect import QUIET, SAMPLES
from afterwit.errors import SettingError
from afterwit.planning.gpus import CPU, Gpu, visible
from afterwit.planning.memory import KEYS_VALUES, SPARE, WIDTHS, Model
from afterwit.planning.plan import Models, Part, parts_of

CONTEXT = {"vllm": "--max-model-len", "sglang": "--context-length"}
OVER = {"vllm": "--tensor-parallel-size", "sglang": "--tp-size"}
COPIES = {"vllm": "--data-parallel-size", "sglang": "--dp-size"}
SHARE = {"vllm": "--gpu-memory-utilization", "sglang": "--mem-fraction-static"}
MOST = 0.9
"""The largest share of a GPU that a server gets."""
CPU_CACHE = 16
"""The part of the machine's memory that a lone server on the CPU uses for keys and values, unless one request
needs more: with 16 GB, those of 9,000 tokens of Qwen3-0.6B in bfloat16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedServer:
    """A server on its GPUs. `url` is its address without a path; the command names the GPUs too."""

    name: str
    """engine, or engine-1, engine-2 of several; judge; teacher."""
    url: str
    command: ServerCommand


def policy_servers(settings: Settings, models: Models, parts: Sequence[Part]) -> Iterator[PlacedServer]:
    """The servers at `engine.url`, if the policy has GPUs. SettingError if an address has no port.

    The model's weights must be here: the flags follow from their names.
    """
    by_name = {part.name: part for part in parts}
    engine, policy, learner = settings.engine, by_name.get("policy"), by_name.get("learner")
    if policy is None or not isinstance(engine, ServerSettings):
        return
    share: tuple[str, ...] = ()
    if learner is not None and any(gpu.name != CPU for gpu in {*learner.gpus} & {*policy.gpus}):
        share = _share(engine.kind, policy, learner)
    for index, url in enumerate(engine.urls):
        host, port = address("engine.url", url)
        command = LAUNCHERS[engine.kind](
            models.served.folder.resolve(),
            engine,
            host=host,
            port=port,
            lora_rank=settings.learner.lora_rank,
            more=(*_sizes(settings, models.served, policy, copies=1), *share),
        )
        own = policy.gpus[index * policy.over : (index + 1) * policy.over]
        yield PlacedServer(
            name="engine" if len(engine.urls) == 1 else f"engine-{index + 1}",
            url=f"http://{host}:{port}",
            command=replace(command, environment=visible(own) | dict(command.environment)),
        )


def other_servers(settings: Settings, models: Models, parts: Sequence[Part]) -> Iterator[PlacedServer]:
    """Judge and teacher, if they have GPUs, on servers of the engine's kind, or vLLM. SettingError if an
    address has no port."""
    by_name = {part.name: part for part in parts}
    if (judge := by_name.get("judge")) is not None:
        name = ("--served-model-name", settings.judge.model or models.judge.name)
        yield _server(settings, models.judge, judge, "judge.url", settings.judge.url or "", name)
    if (teacher := by_name.get("teacher")) is not None:
        scores = (SAMPLES, "--max-logprobs", str(teacher_top_k(settings.objective)))
        flags, url = scores if _kind(settings) == "vllm" else (), settings.learner.teacher_url or ""
        yield _server(settings, models.teacher, teacher, "learner.teacher_url", url, flags)


def _server(
    settings: Settings, model: Model, part: Part, setting: str, url: str, flags: Sequence[str]
) -> PlacedServer:
    kind, (host, port) = _kind(settings), address(setting, url)
    program = settings.engine.command if hasattr(settings.engine, "command") else VllmSettings().command
    start = ("serve", model.name) if kind == "vllm" else ("--model-path", model.name)
    sizes = _sizes(settings, model, part, copies=part.servers)
    command = ServerCommand(
        arguments=(*program, *start, "--host", host, "--port", str(port), *sizes, *flags),
        environment=visible(part.gpus) | (QUIET if kind == "vllm" else {}),
    )
    return PlacedServer(name=part.name, url=f"http://{host}:{port}", command=command)


def lone_flags(settings: Settings, models: Models, gpu: Gpu) -> tuple[str, ...]:
    """Flags of the one server of a machine without a section `placement`: it leaves room for the learner.

    By default vLLM and SGLang take nearly all of a GPU, or of the machine's memory.
    """
    (policy, *others) = parts_of(settings, models, (gpu,))
    if gpu.name == CPU:
        cache = max(policy.memory[KEYS_VALUES], gpu.size // CPU_CACHE)
        policy = replace(policy, memory=policy.memory | {KEYS_VALUES: cache})
        return _sizes(settings, models.served, policy, copies=1)
    if not others:
        return ()
    free = gpu.size * _left(policy, others[0]) / SPARE
    longest = (free - policy.memory["weights"] - policy.memory["adapters"]) // (
        policy.memory[KEYS_VALUES] or 1
    )
    room = longest * min(settings.placement.context, models.served.shape.context)
    sizes = () if room >= models.served.shape.context else _sizes(settings, models.served, policy, copies=1)
    return (*sizes, *_share(_kind(settings), policy, others[0]))


def own_gpus(settings: Settings, parts: Sequence[Part]) -> tuple[Gpu, ...]:
    """The GPUs of Afterwit's own processes: the learner's, whose ranks take the first ones, then that of an
    embedded engine."""
    by_name = {part.name: part for part in parts}
    embedded = not isinstance(settings.engine, ServerSettings)
    mine = [by_name[name] for name in ("learner", *(("policy",) if embedded else ())) if name in by_name]
    return tuple(dict.fromkeys(gpu for part in mine for gpu in part.gpus))


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
    """Of a judge's or a teacher's server."""
    return settings.engine.kind if settings.engine.kind in LAUNCHERS else "vllm"


def _share(kind: str, policy: Part, learner: Part) -> tuple[str, ...]:
    return (SHARE[kind], f"{_left(policy, learner):.2f}")


def _left(policy: Part, learner: Part) -> float:
    """The share of a GPU that the learner leaves, and at least what the policy needs."""
    size = policy.gpus[0].size
    return min(max(policy.needs, size - learner.needs) / size, MOST)


def _sizes(settings: Settings, model: Model, part: Part, *, copies: int) -> tuple[str, ...]:
    kind, context = _kind(settings), settings.placement.context
    return (
        *((CONTEXT[kind], str(context)) if context < model.shape.context else ()),
        *((OVER[kind], str(part.over)) if part.over > 1 else ()),
        *((COPIES[kind], str(copies)) if copies > 1 else ()),
        *(_on_cpu(kind, settings, model, part) if part.gpus[0].name == CPU else ()),
    )


def _on_cpu(kind: str, settings: Settings, model: Model, part: Part) -> tuple[str, ...]:
    """There all parts share one memory, most of which a server would take: it gets what is counted."""
    if kind == "vllm":
        return ("--kv-cache-memory-bytes", str(int(SPARE * part.memory[KEYS_VALUES])))
    own = settings.engine.dtype if part.name == "policy" else "auto"
    token = WIDTHS[model.dtype if own == "auto" else own] * model.shape.kept_per_token
    return ("--device", "cpu", "--max-total-tokens", str(part.memory[KEYS_VALUES] // token))

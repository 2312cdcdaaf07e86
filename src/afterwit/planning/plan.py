"""Each part's GPUs and the memory that it takes there. What does not fit is refused with the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from afterwit.config import Settings
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.llama_cpp.server import PROCESSES
from afterwit.engines.model_files import LINK
from afterwit.engines.server.settings import LlamaCppSettings, ServerSettings
from afterwit.engines.teacher import require_servable
from afterwit.engines.vllm.server import ADAPTERS
from afterwit.errors import SettingError
from afterwit.learning.settings import SERVER
from afterwit.planning.gpus import CPU, Gpu
from afterwit.planning.memory import (
    KEYS_VALUES,
    SPARE,
    WIDTHS,
    Memory,
    Model,
    ModelShape,
    activations,
    embedded_memory,
    fitting,
    largest_pass,
    learner_memory,
    model_of,
    server_memory,
)

HALF = "bfloat16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """The models of a plan; `others` are the checkpoints that the settings name as teacher and reference."""

    served: Model
    judge: Model
    teacher: Model
    others: tuple[Model, ...] = ()


def models_of(settings: Settings, home: Path) -> Models:
    """The models that the settings name. SettingError if one cannot be counted."""
    placement, served = settings.placement, model_of(settings.model, home)
    return Models(
        served=served,
        judge=model_of(placement.judge_model, home) if placement.judge_model else served,
        teacher=model_of(placement.teacher_model, home) if placement.teacher_model else served,
        others=tuple(model_of(name, home) for name in sorted(set(settings.learner.checkpoints.values()))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part on its GPUs. Each of `servers` copies is spread over `over` GPUs; `memory` is of each GPU."""

    name: str
    gpus: tuple[Gpu, ...]
    memory: Memory
    servers: int = 1
    over: int = 1

    @property
    def needs(self) -> int:
        """Bytes of each GPU, with the allowance for CUDA and the allocator."""
        return int(SPARE * sum(self.memory.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The parts in the order of their GPUs: policy, judge, teacher, learner."""

    settings: Settings
    models: Models
    parts: tuple[Part, ...]

    def part(self, name: str) -> Part | None:
        return next((part for part in self.parts if part.name == name), None)


def plan(settings: Settings, models: Models, gpus: Sequence[Gpu]) -> Plan:
    """SettingError if settings contradict each other, or if a part does not fit, with the numbers."""
    for contradiction in _contradictions(settings, models.served, len(gpus)):
        raise SettingError(contradiction)
    if settings.learner.teacher == SERVER:
        require_servable(settings.objective)
    parts = tuple(parts_of(settings, models, gpus))
    if not parts:
        raise SettingError("no part has a GPU: set placement.policy or placement.learner")
    shape, spare = models.served.shape, any(not [part for part in parts if gpu in part.gpus] for gpu in gpus)
    if faults := [fault for gpu in gpus if (fault := _overfull(settings, shape, parts, gpu, spare=spare))]:
        raise SettingError("\n".join(dict.fromkeys(faults)))
    return Plan(settings=settings, models=models, parts=parts)


def parts_of(settings: Settings, models: Models, gpus: Sequence[Gpu]) -> Iterator[Part]:
    """The parts, whether or not they fit."""
    placement, learner, objective = settings.placement, settings.learner, settings.objective
    free, first, shape = list(gpus), tuple(gpus[:1]), models.served.shape

    def take(count: int) -> tuple[Gpu, ...]:
        taken = tuple(free[:count])
        del free[:count]
        return taken

    if placement.policy:
        yield _policy(settings, models.served, take(placement.policy))
    if placement.judge:
        yield _server("judge", models.judge, placement.context, take(placement.judge))
    if placement.teacher:
        yield _server("teacher", models.teacher, placement.context, take(placement.teacher))
    if learner.enabled:
        teaches = objective.needs_teacher and learner.teacher == "base"
        refers = objective.beta > 0 and learner.reference == "base"
        if first and first[0].name == CPU:
            learner = fitting(shape, learner, first[0].size)
        memory = learner_memory(
            shape,
            learner,
            tokens=largest_pass(shape, learner),
            holds_base=teaches or refers,
            others=[other.shape for other in models.others],
        )
        yield Part(
            name="learner",
            gpus=take(placement.learner) or first,
            memory=memory,
            servers=learner.processes // learner.shards,
            over=learner.shards,
        )


def _policy(settings: Settings, model: Model, gpus: tuple[Gpu, ...]) -> Part:
    engine, rank = settings.engine, settings.learner.lora_rank
    if isinstance(engine, EmbeddedSettings):
        longest = min(engine.context_length or 32_768, model.shape.context)
        cache = gpus[0].size // 8 if engine.prefix_cache_gib is None else int(engine.prefix_cache_gib * 2**30)
        dtype = HALF if engine.dtype == "auto" else engine.dtype
        memory = embedded_memory(model.shape, dtype, cache=cache, tokens=longest, rank=rank)
        return Part(name="policy", gpus=gpus, memory=memory)
    if isinstance(engine, LlamaCppSettings):
        return Part(name="policy", gpus=gpus, memory=_llama_cpp_memory(settings, engine, model, gpus[0]))
    if not isinstance(engine, ServerSettings):
        raise SettingError(f"engine.kind is {engine.kind!r}, whose memory only its package can count")
    over = len(gpus) // len(engine.urls)
    memory = server_memory(
        model.shape,
        model.dtype if engine.dtype == "auto" else engine.dtype,
        tokens=min(settings.placement.context, model.shape.context),
        over=over,
        adapters=ADAPTERS if engine.swap == "adapters" else 0,
        rank=rank,
    )
    return Part(name="policy", gpus=gpus, memory=memory, servers=len(engine.urls), over=over)


def _llama_cpp_memory(settings: Settings, engine: LlamaCppSettings, model: Model, gpu: Gpu) -> Memory:
    """Of the base's process, the live version's, and a new one's next to it: on a CPU they share the file."""
    processes = PROCESSES if settings.learner.enabled else 1
    file = model.folder if model.folder.is_file() else model.folder / LINK
    own = server_memory(model.shape, HALF, tokens=min(engine.context_length, model.shape.context))
    weights = file.stat().st_size if file.is_file() else own["weights"]
    return {
        "weights": weights * (1 if gpu.name == CPU else processes),
        "adapters": (processes - 1) * WIDTHS["float32"] * model.shape.adapter(settings.learner.lora_rank),
        KEYS_VALUES: processes * engine.slots * own[KEYS_VALUES],
    }


def _server(name: str, model: Model, context: int, gpus: tuple[Gpu, ...]) -> Part:
    """A server whose weights never change: as many copies as its GPUs hold, each over as few as it needs."""
    tokens, count = min(context, model.shape.context), len(gpus)
    parts = [
        Part(
            name=name,
            gpus=gpus,
            memory=server_memory(model.shape, model.dtype, tokens=tokens, over=over),
            servers=count // over,
            over=over,
        )
        for over in range(1, count + 1)
        if not count % over and not model.shape.heads % over
    ]
    return next((part for part in parts if part.needs <= min(gpu.size for gpu in gpus)), parts[-1])


def _overfull(
    settings: Settings, shape: ModelShape, parts: Sequence[Part], gpu: Gpu, *, spare: bool
) -> str | None:
    """Why a GPU does not hold its parts; None if it does. `spare`: another GPU has no part."""
    here = [part for part in parts if gpu in part.gpus]
    needed = sum(part.needs * part.gpus.count(gpu) for part in here)  # the CPU's memory counts each place
    if needed <= gpu.size:
        return None
    counted = "; ".join(
        f"{part.name}: " + ", ".join(f"{what} {size / 1e9:.1f}" for what, size in part.memory.items() if size)
        for part in here
    )
    names = " and ".join(part.name for part in here)
    place = "this machine's memory" if gpu.name == CPU else "a GPU"
    remedy = _remedy(settings, shape, here, spare=spare)
    return (
        f"{place} of {gpu.size / 1e9:.0f} GB does not hold the {names}: {needed / 1e9:.1f} GB are needed "
        f"({counted}; and a fifth more for what is not counted); {remedy}"
    )


def _remedy(settings: Settings, shape: ModelShape, here: Sequence[Part], *, spare: bool) -> str:
    learner, tokens = settings.learner, largest_pass(shape, settings.learner)
    if here[0].gpus[0].name == CPU:
        return "lower placement.context or learner.max_tokens, or use more memory or fewer processes"
    if len(here) > 1 and spare:
        return "give the learner a GPU of its own, placement.learner = 1"
    if here[-1].name != "learner":
        return f"give it more GPUs, placement.{here[0].name}, or lower placement.context"
    if activations(shape, replace(learner, checkpointing=True), tokens) < activations(shape, learner, tokens):
        return "set learner.checkpointing = true"
    if learner.dtype != HALF:
        return f'set learner.dtype = "{HALF}"'
    if not learner.lora_rank and learner.shards < learner.processes:
        return f"set learner.shards = {learner.processes}"
    if not learner.lora_rank:
        return "set learner.lora_rank = 16, or give it more GPUs with more shards"
    return "lower learner.max_tokens, or use larger GPUs"


def _contradictions(settings: Settings, model: Model, gpus: int) -> Iterator[str]:
    """Settings that contradict each other, or the number of GPUs; `model` is the served one."""
    placement, engine, learner = settings.placement, settings.engine, settings.learner
    if placement.gpus > gpus:
        yield (
            f"the placement has {placement.gpus} GPUs (policy {placement.policy}, judge {placement.judge}, "
            f"teacher {placement.teacher}, learner {placement.learner}), but there are {gpus}"
        )
    if isinstance(engine, ServerSettings):
        count, servers = placement.policy, len(engine.urls)
        if count % servers:
            yield (
                f"placement.policy is {count} GPUs, which {servers} servers (engine.url) cannot share evenly"
            )
        elif count and model.shape.heads % (over := count // servers):
            yield (
                f"placement.policy gives a server {over} GPUs, which do not divide the model's "
                f"{model.shape.heads} heads: name more servers in engine.url"
            )
        if (fault := mismatched_swap(settings)) is not None:
            yield fault
    elif placement.policy != 1:
        yield (
            f"placement.policy is {placement.policy} GPUs, but the embedded engine uses one: set "
            "placement.policy = 1, or engine.kind to vllm or sglang"
        )
    if placement.judge and (settings.judge.url is None or not settings.judge.enabled):
        yield (
            f"placement.judge is {placement.judge} GPUs, but no server judges: set judge.url, or "
            "placement.judge = 0"
        )
    if placement.teacher and (learner.teacher != SERVER or learner.teacher_url is None):
        yield (
            f"placement.teacher is {placement.teacher} GPUs, but no server of its own teaches: set "
            'learner.teacher = "server" and learner.teacher_url, or placement.teacher = 0'
        )
    if not learner.enabled:
        if placement.learner:
            yield f"placement.learner is {placement.learner} GPUs, but learner.enabled is false"
        return
    if learner.processes % learner.shards:
        yield f"learner.processes is {learner.processes}, which is not a multiple of shards, {learner.shards}"
    if learner.processes != (placement.learner or 1):
        has = f"{placement.learner} GPUs" if placement.learner else "0, a share of the policy's GPU"
        yield (
            f"learner.processes is {learner.processes}, but placement.learner is {has}: each process needs "
            "a GPU of its own, so make them equal"
        )
    if not placement.policy and not placement.learner:
        yield "the learner has no GPU: placement.policy and placement.learner are 0"


def mismatched_swap(settings: Settings) -> str | None:
    """Why the server cannot take what the learner trains; None if it can."""
    engine, learner = settings.engine, settings.learner
    assert isinstance(engine, ServerSettings)
    if not learner.enabled or (engine.swap == "adapters") == (learner.lora_rank > 0):
        return None
    return (
        f"engine.swap is {engine.swap!r}, but learner.lora_rank is {learner.lora_rank}: adapters need a rank "
        "above 0, whole weights need 0"
    )

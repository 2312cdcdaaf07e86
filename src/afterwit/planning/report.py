"""`afterwit plan` as text: the parts, what each GPU has left, and the lines that start them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from afterwit.config import Settings
from afterwit.engines.server.settings import ServerSettings
from afterwit.planning.gpus import CPU, Gpu, visible
from afterwit.planning.memory import WIDTHS, Model
from afterwit.planning.plan import Models, Part, models_of, plan
from afterwit.planning.servers import other_servers, own_gpus, policy_servers
from afterwit.text import counted

GB = 1e9
MEMORY = "memory"
"""The name of the CPU's place."""


def report(settings: Settings, home: Path, gpus: Sequence[Gpu], *, flags: Sequence[str] = ()) -> str:
    """The whole plan; the line of `serve` gets `flags`. SettingError if the plan does not fit."""
    models = models_of(settings, home)
    parts = plan(settings, models, gpus)
    table = "\n".join(map(_row, parts))
    lines = "\n".join(_lines(settings, models, parts, flags))
    return f"{_head(settings, models.served, gpus)}\n\n{table}\n\n{_left(parts, gpus)}\n\n{lines}"


def _head(settings: Settings, model: Model, gpus: Sequence[Gpu]) -> str:
    shape, learner = model.shape, settings.learner
    trains = f"{_count(shape.adapter(learner.lora_rank))} of an adapter" if learner.lora_rank else "all"
    token = shape.kept_per_token * WIDTHS[model.dtype]
    sizes = " and ".join(sorted({f"{gpu.size / GB:.0f} GB" for gpu in gpus}))
    there = counted(len(gpus), "GPU") if gpus[0].name != CPU else "The memory"
    return (
        f"{model.name}: {_count(shape.weights)} weights; {trains if learner.enabled else 'none'} train; keys "
        f"and values take {token:,} bytes a token\n"
        f"{there} of {sizes}. Counted from shapes, not measured"
    )


def _row(part: Part) -> str:
    names = ",".join(dict.fromkeys(gpu.name or MEMORY for gpu in part.gpus))
    what = ", ".join(f"{name} {size / GB:.1f}" for name, size in part.memory.items() if size)
    each = "process" if part.gpus[0].name == CPU else "GPU"
    copies = f"{part.servers} x {counted(part.over, each)}"
    return f"{part.name:8} on {names:9} {copies:12} {part.needs / GB:6.1f} GB a {each}: {what}"


def _left(parts: Sequence[Part], gpus: Sequence[Gpu]) -> str:
    """The memory that is left on each GPU, equal ones together."""
    left: dict[int, list[str]] = {}
    for gpu in dict.fromkeys(gpus):
        rest = gpu.size - sum(part.needs * part.gpus.count(gpu) for part in parts)
        left.setdefault(int(rest / GB), []).append(gpu.name)
    places = {
        rest: "this machine's memory" if names == [CPU] else f"GPUs {','.join(names)}"
        for rest, names in left.items()
    }
    listed = "; ".join(f"{rest} GB of {place}" for rest, place in places.items())
    return f"left, after a fifth more for what is not counted: {listed}"


def _count(number: int) -> str:
    return f"{number / 1e9:.2f} G" if number >= 1e9 else f"{number / 1e6:.2f} M"


def _lines(settings: Settings, models: Models, parts: Sequence[Part], flags: Sequence[str]) -> Iterator[str]:
    """A line for each server, then that of `serve`. SettingError if an address has no port."""
    embedded = not isinstance(settings.engine, ServerSettings)
    policy = next((part for part in parts if part.name == "policy"), None)
    servers = list(policy_servers(settings, models, parts)) if models.served.here else []
    if not models.served.here and not embedded and policy is not None:
        yield (
            f"# download {models.served.name} first: the flags of its servers follow from the names of its "
            "weights"
        )
    for server in (*servers, *other_servers(settings, models, parts)):
        yield _line(server.command.environment, server.command.arguments)
    own = own_gpus(settings, parts)
    device: tuple[str, ...] = ()
    if embedded and policy is not None:
        gpu = policy.gpus[0]
        device = ("--set", f"engine.device={'cpu' if gpu.name == CPU else f'cuda:{own.index(gpu)}'}")
    yield _line(visible(own), ("./afterwit", "serve", models.served.name, *flags, *device))


def _line(environment: Mapping[str, str], words: Sequence[str]) -> str:
    assigned = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    return " ".join([*assigned, shlex.join(words)])

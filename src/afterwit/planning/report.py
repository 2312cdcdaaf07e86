"""`afterwit plan` as text: the parts, what each GPU has left, and the lines that start them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from afterwit.config import Settings
from afterwit.engines.server.settings import ServerSettings
from afterwit.planning.gpus import CPU, Gpu, visible
from afterwit.planning.memory import WIDTHS
from afterwit.planning.plan import Part, Plan, models_of, plan
from afterwit.planning.servers import own_gpus, servers_of
from afterwit.text import counted

GB = 1e9
MEMORY = "memory"
"""The name of the CPU's place."""


def report(settings: Settings, home: Path, gpus: Sequence[Gpu], *, flags: Sequence[str] = ()) -> str:
    """The whole plan; the line of `serve` gets `flags`. SettingError if the plan does not fit."""
    made = plan(settings, models_of(settings, home), gpus)
    rows, lines = "\n".join(map(_row, made.parts)), "\n".join(_lines(made, flags))
    return f"{_head(made, gpus)}\n\n{rows}\n\n{_left(made, gpus)}\n\n{lines}"


def _head(made: Plan, gpus: Sequence[Gpu]) -> str:
    def number(weights: int) -> str:
        return f"{weights / 1e9:.2f} G" if weights >= 1e9 else f"{weights / 1e6:.2f} M"

    model, learner = made.models.served, made.settings.learner
    trains = f"{number(model.shape.adapter(learner.lora_rank))} of an adapter" if learner.lora_rank else "all"
    if not learner.enabled:
        trains = "none"
    token = model.shape.kept_per_token * WIDTHS[model.dtype]
    sizes = " and ".join(sorted({f"{gpu.size / GB:.0f} GB" for gpu in gpus}))
    there = counted(len(gpus), "GPU") if gpus[0].name != CPU else "The memory"
    return (
        f"{model.name}: {number(model.shape.weights)} weights; {trains} train; "
        f"keys and values take {token:,} bytes a token\n"
        f"{there} of {sizes}. Counted from shapes, not measured"
    )


def _row(part: Part) -> str:
    names = ",".join(dict.fromkeys(gpu.name or MEMORY for gpu in part.gpus))
    what = ", ".join(f"{name} {size / GB:.1f}" for name, size in part.memory.items() if size)
    each = "process" if part.gpus[0].name == CPU else "GPU"
    copies = f"{part.servers} x {counted(part.over, each)}"
    return f"{part.name:8} on {names:9} {copies:12} {part.needs / GB:6.1f} GB a {each}: {what}"


def _left(made: Plan, gpus: Sequence[Gpu]) -> str:
    left: dict[int, list[str]] = {}
    for gpu in dict.fromkeys(gpus):
        rest = gpu.size - sum(part.needs * part.gpus.count(gpu) for part in made.parts)
        left.setdefault(int(rest / GB), []).append(gpu.name)
    listed = "; ".join(
        f"{rest} GB of " + ("this machine's memory" if names == [CPU] else f"GPUs {','.join(names)}")
        for rest, names in left.items()
    )
    return f"left, after a fifth more for what is not counted: {listed}"


def _lines(made: Plan, flags: Sequence[str]) -> Iterator[str]:
    """A line for each server, then that of `serve`. SettingError if an address has no port."""

    def line(environment: Mapping[str, str], words: Sequence[str]) -> str:
        assigned = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
        return " ".join([*assigned, shlex.join(words)])

    served, policy, own = made.models.served, made.part("policy"), own_gpus(made)
    embedded = not isinstance(made.settings.engine, ServerSettings)
    from_file = served.folder.is_file() and not embedded  # a GGUF file, which `up` serves as it is
    if not served.here and not embedded and not from_file and policy is not None:
        yield f"# download {served.name} first: the flags of its servers follow from the names of its weights"
    for server in servers_of(made):
        yield line(server.command.environment, server.command.arguments)
    device: tuple[str, ...] = ()
    if embedded and policy is not None:
        gpu = policy.gpus[0]
        device = ("--set", f"engine.device={'cpu' if gpu.name == CPU else f'cuda:{own.index(gpu)}'}")
    yield line(visible(own), ("./afterwit", "up" if from_file else "serve", served.name, *flags, *device))

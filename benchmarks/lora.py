"""What does an adapter (r 16) save, in the learner's memory, on disk and in time, against full weights?

One update of four short turns with hints, reference KL and base teacher, on a random Qwen3 of 76 M parameters
without a vocabulary to speak of. Memory is how far the process rises above what it held with everything
imported; disk is weights and learner's state of the version; time includes writing it. Left out: GPUs; long
turns, whose activations are the same for both.
"""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from afterwit.chat_format.render import Renderer
from afterwit.checkpoints.manifest import is_learned
from afterwit.checkpoints.versions import Versions
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.trainer import Trainer
from afterwit.objective.settings import ObjectiveSettings
from benchmarks.asked import Asked
from benchmarks.measure import Row, apart, cpu_seconds
from tests.fakes.judged_samples import a_sample
from tests.fakes.models import tiny_qwen3

RANK = 16
SHAPE = {
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "initializer_range": 0.02,
}
QUICK = SHAPE | {"hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 2}


@dataclass(frozen=True, slots=True)
class Costs:
    """Of one update."""

    memory: float
    """Bytes a parameter of the model, as `disk`."""
    disk: float
    seconds: float


def rows(asked: Asked) -> Iterator[Row]:
    shape = QUICK if asked.quick else SHAPE
    with tempfile.TemporaryDirectory() as folder:
        base = tiny_qwen3(Path(folder), **shape)
        for dtype in ("float32",) if asked.quick else ("float32", "bfloat16"):
            full, adapter = (apart(_one_update, base, dtype, rank) for rank in (0, RANK))
            peer = f"full weights, {dtype}"
            for kind in ("memory", "disk"):
                theirs, ours = getattr(full, kind), getattr(adapter, kind)
                yield Row(
                    id="a1",
                    what=f"adapter: {kind} / that of {peer}",
                    values=(ours / theirs,),
                    peer=peer,
                    note=f"{ours:.2f} against {theirs:.2f} bytes a parameter",
                )
            yield Row(
                id="a1",
                what=f"adapter: time of one update / that of {peer}",
                values=(adapter.seconds / full.seconds,),
                peer=peer,
            )


def _one_update(base: Path, dtype: str, rank: int) -> Costs:
    """Train and write one version."""
    import peft  # noqa: F401 - what is imported does not count

    torch.set_num_threads(1)
    renderer = Renderer.load(base)
    settings = LearnerSettings(device="cpu", dtype=dtype, lora_rank=rank)
    before = _resident()
    with tempfile.TemporaryDirectory() as home:
        versions = Versions(root=Path(home), base=base)
        trainer = Trainer(versions, renderer, settings=settings, objective=ObjectiveSettings())
        trainer.begin(now=0.0)
        items, _ = trainer.build([a_sample(renderer, number) for number in range(4)])
        seconds = cpu_seconds(lambda: trainer.train(items, [], now=1.0, progress=lambda phase: None))
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        disk = sum(path.stat().st_size for path in versions.place(1).iterdir() if is_learned(path.name))
    size = (base / "model.safetensors").stat().st_size / 4
    return Costs((peak - before) / size, disk / size, seconds)


def _resident() -> int:
    """Bytes that this process holds in memory now (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

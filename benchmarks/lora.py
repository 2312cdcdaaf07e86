"""What does an adapter (r 16) save, in the learner's memory and on disk, against full weights?

One update of four short turns with hints, anchor and base teacher, on a random Qwen3 of 76 M parameters
without a vocabulary to speak of; each variant in a process of its own.
memory  the peak of the process above what it held with everything imported, bytes a parameter of the model;
disk    weights and learner's state of the version, bytes a parameter;
time    CPU seconds of the update, its version written, over those of full weights in the same dtype.
Left out: GPUs; long turns, whose activations are the same for both.
`python -m benchmarks.lora [--out FILE]`
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import Row, report

SHAPE = {
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "head_dim": 64,
}
VARIANTS = {
    f"{dtype}, {'full weights' if rank == 0 else f'adapter of rank {rank}'}": {
        "dtype": dtype,
        "lora_rank": rank,
    }
    for dtype in ("float32", "bfloat16")
    for rank in (0, 16)
}


def one_update(base: Path, way: dict[str, Any]) -> dict[str, float]:
    """Train and write one version; its costs."""
    import peft  # noqa: F401 - what is imported does not count
    import torch

    from afterwit.learner.settings import LearnerSettings
    from afterwit.learner.trainer import Trainer
    from afterwit.learner.versions import Versions
    from afterwit.objective.settings import ObjectiveSettings
    from afterwit.wire.render import Renderer
    from tests.fakes.lessons import lesson

    torch.set_num_threads(1)
    renderer, settings = Renderer.load(base), LearnerSettings(device="cpu", **way)
    before = resident()
    with tempfile.TemporaryDirectory() as home:
        versions = Versions(root=Path(home), base=base)
        trainer = Trainer(versions, renderer, settings=settings, objective=ObjectiveSettings())
        trainer.begin(now=0.0)
        items, _ = trainer.build([lesson(renderer, number) for number in range(4)])
        began = time.process_time()
        trainer.train(items, [], [], now=1.0, progress=lambda phase: None)
        seconds = time.process_time() - began
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        disk = sum(path.stat().st_size for path in versions.place(1).glob("*.safetensors"))
    size = (base / "model.safetensors").stat().st_size / 4
    return {"memory": (peak - before) / size, "disk": disk / size, "seconds": seconds}


def resident() -> int:
    """Bytes that this process holds in memory now (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def costs_of(base: Path) -> dict[str, dict[str, float]]:
    """Each variant's costs, in a process of its own."""
    costs = {}
    for name in VARIANTS:
        command = [sys.executable, "-m", "benchmarks.lora", "--variant", name, "--base", str(base)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        costs[name] = json.loads(done.stdout)
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--variant", choices=VARIANTS, help="one alone, as JSON, over the model in --base")
    parser.add_argument("--base", type=Path)
    asked = parser.parse_args()
    if asked.variant:
        print(json.dumps(one_update(asked.base, VARIANTS[asked.variant])))
        return
    from tests.fakes.models import tiny_qwen3

    with tempfile.TemporaryDirectory() as folder:
        costs = costs_of(tiny_qwen3(Path(folder), initializer_range=0.02, **SHAPE))
    rows = [
        Row(id=unit[0].upper(), what=f"{unit}, bytes a parameter: {name}", values=(cost[unit],), target=None)
        for unit in ("memory", "disk")
        for name, cost in costs.items()
    ]
    for dtype in ("float32", "bfloat16"):
        full, adapter = (cost["seconds"] for name, cost in costs.items() if name.startswith(dtype))
        what = f"time, adapter / full weights: {dtype}"
        rows.append(Row(id="T", what=what, values=(adapter / full,), target=None))
    report(__doc__.splitlines()[0], rows, out=asked.out)


if __name__ == "__main__":
    main()

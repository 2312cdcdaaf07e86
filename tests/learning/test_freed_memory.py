from __future__ import annotations

import ctypes
import os
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
from torch.nn import Module

from afterwit.chat_format.render import Renderer
from afterwit.checkpoints.versions import Versions
from afterwit.engines.embedded.engine import EmbeddedEngine, load_version
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.learning.batch import Behaviour, Item
from afterwit.learning.passes import Row
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.trainer import Trainer
from afterwit.objective.settings import ObjectiveSettings
from afterwit.weights.weights import return_freed
from tests.engines.talk import ask, say
from tests.fakes.adapters import noise
from tests.fakes.models import tiny_qwen3
from tests.learning.updates import quiet

MIB = 2**20
KEPT_MIB = 8
"""About half of the least that glibc kept by itself of these updates."""


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def turns_of(tokens: int, *, count: int = 8) -> list[Item]:
    """Turns of different lengths, as those of people are."""
    return [
        Item(
            turn=f"{number} of {tokens}",
            behaviour=Behaviour(forced=(False,) * 8, logprobs=(-1.0,) * 8),
            student=Row(prompt=(1,) * (tokens - 37 * number), response=(2,) * 8),
            teachers=(),
            hints=(),
            reward=1.0,
            staleness=0,
        )
        for number in range(count)
    ]


only_glibc = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"),
    reason="only glibc has malloc_trim",
)


@only_glibc
def test_an_update_leaves_the_memory_of_its_passes_to_others(
    base: Path, renderer: Renderer, tmp_path: Path
) -> None:
    settings = LearnerSettings(device="cpu", lr=1e-3, packing="off")
    trainer = Trainer(
        Versions(root=tmp_path, base=base), renderer, settings=settings, objective=ObjectiveSettings()
    )
    trainer.begin(now=1.0)
    trainer.train(turns_of(1500), [], now=1.0, progress=quiet)
    left = resident_mib()
    return_freed()
    assert left - resident_mib() < KEPT_MIB


@pytest.mark.parametrize("kept", [True, False])
async def test_weights_that_are_replaced_or_discarded_leave_their_memory_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """Memory is returned after each version, when all weights but those in use are gone.

    Resident memory would not show it: glibc keeps up to 20 of 30 MiB at the top of a thread's arena.
    """
    base = tiny_qwen3(tmp_path / "base")
    versions = [noise(tmp_path / str(seed), base, seed=seed) for seed in range(2)]
    loaded: list[weakref.ref[Module]] = []
    returned: list[int] = []

    def load(folder: Path, **how: Any) -> Module:
        module = load_version(folder, **how)
        loaded.append(weakref.ref(module))
        return module

    monkeypatch.setattr("afterwit.engines.embedded.engine.load_version", load)
    monkeypatch.setattr(
        "afterwit.engines.embedded.engine.return_freed",
        lambda: returned.append(sum(each() is not None for each in loaded)),
    )
    engine = EmbeddedEngine.load(base, EmbeddedSettings(prefix_cache_gib=0.0))
    try:
        for version in range(1, 6):
            await say(engine, ask(range(3, 200), max_tokens=4))
            await engine.stage(version, versions[version % 2])
            await engine.probe(range(3, 20))
            await (engine.promote() if kept else engine.discard())
    finally:
        await engine.close()
    assert returned == [int(kept)] * 5

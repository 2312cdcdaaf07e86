"""The GPUs of this machine, or others by their memory; and the section `placement`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from afterwit.errors import SettingError
from afterwit.ranges import at_least, one_of_its_choices

NVIDIA_SMI = ("nvidia-smi", "--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits")
VISIBLE = "CUDA_VISIBLE_DEVICES"
UUID = "GPU-"
"""How the uuid of a GPU begins."""
AS_LISTED = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""Makes CUDA number the GPUs as nvidia-smi does, even if they differ."""
CPU = ""
"""The name of the machine's memory, which replaces every GPU under `placement.device = "cpu"`."""
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")
AMD = Path("/dev/kfd")
"""Exists if the machine has GPUs of AMD."""
REMEDY = 'name them, such as `afterwit plan --gpu-memory 80GB --gpus 8`, or set placement.device = "cpu"'


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementSettings:
    """How many GPUs of a machine each part gets. `afterwit plan` computes with it, and `afterwit up`
    starts the parts by it."""

    device: Literal["cuda", "cpu"] = "cuda"
    """cpu: the numbers count servers and processes that share the machine's memory."""
    policy: int = 1
    """GPUs of the serving engines, divided evenly among `engine.url`. 0: they run elsewhere."""
    judge: int = 0
    """GPUs of the server at `judge.url`. 0: it runs elsewhere, or the served model judges."""
    teacher: int = 0
    """GPUs of the server at `learner.teacher_url`. 0: it runs elsewhere, or the learner holds it."""
    learner: int = 0
    """GPUs of the learner, one for each of `learner.processes`. 0: it shares the policy's."""
    judge_model: str | None = None
    """The judge server's model. Unset: the served one."""
    teacher_model: str | None = None
    """The teacher server's model. Unset: the served one."""
    context: int = 32_768
    """Tokens of the longest request that every engine can hold, at most the model's context."""

    def __post_init__(self) -> None:
        one_of_its_choices(self)
        at_least(self, 0, "policy", "judge", "teacher", "learner")
        at_least(self, 1, "context")

    @property
    def gpus(self) -> int:
        return self.policy + self.judge + self.teacher + self.learner


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """`name` is its name in CUDA_VISIBLE_DEVICES; `size` is in bytes."""

    name: str
    size: int


def visible(gpus: Sequence[Gpu]) -> dict[str, str]:
    """The environment variables with which a process sees only these GPUs; under the CPU's name, none."""
    names = ",".join(dict.fromkeys(gpu.name for gpu in gpus))
    return {VISIBLE: names} | (AS_LISTED if names else {})


def gpus_here(placement: PlacementSettings, environment: Mapping[str, str] = os.environ) -> tuple[Gpu, ...]:
    """This machine's GPUs, or its memory once for each part of the placement. SettingError without a GPU."""
    if placement.device == "cuda":
        return found_gpus(environment)
    return (Gpu(name=CPU, size=memory_here()),) * placement.gpus


def first_gpu() -> Gpu | None:
    """The place of a server without a placement: the first GPU, or this machine's memory without GPUs.

    None on a machine with AMD's GPUs, whose memory is not queried.
    """
    if AMD.exists():
        return None
    try:
        return found_gpus(os.environ)[0]
    except SettingError:
        return Gpu(name=CPU, size=memory_here())


def memory_here() -> int:
    """Bytes of this machine's memory, or of its container's."""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no container, or no limit
        size = min(size, int(CONTAINER_LIMIT.read_text()))
    return size


def named_gpus(memory: str, count: int) -> tuple[Gpu, ...]:
    """`count` GPUs with a memory such as 80GB or 80. SettingError if it cannot be parsed."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(GB|GiB)?", memory.strip(), re.IGNORECASE)
    if found is None or not float(found[1]):
        raise SettingError(f"--gpu-memory {memory}: write it in GB, such as 80GB")
    unit = 2**30 if (found[2] or "").lower() == "gib" else 10**9
    return tuple(Gpu(name=str(index), size=int(float(found[1]) * unit)) for index in range(count))


def found_gpus(environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs that nvidia-smi lists and CUDA_VISIBLE_DEVICES permits. SettingError if there are none."""
    if shutil.which(NVIDIA_SMI[0], path=environment.get("PATH")) is None:
        raise SettingError(f"there is no nvidia-smi here to list the GPUs: {REMEDY}")
    ended = subprocess.run(NVIDIA_SMI, capture_output=True, text=True, check=False, env=dict(environment))
    if ended.returncode:
        raise SettingError(f"nvidia-smi cannot list the GPUs: {REMEDY}")
    return listed_gpus(ended.stdout, environment.get(VISIBLE))


def listed_gpus(listing: str, visible: str | None) -> tuple[Gpu, ...]:
    """The GPUs of nvidia-smi's lines of index, uuid and MiB; `visible` is CUDA_VISIBLE_DEVICES, if set.

    As CUDA does, it takes the beginning of a uuid, and reads no further than a name that no GPU has.
    SettingError if none is left, or if a GPU's memory is not a number.
    """
    gpus: dict[str, Gpu] = {}
    for line in listing.strip().splitlines():
        index, uuid, size = (part.strip() for part in line.split(","))
        if not size.isdigit():
            raise SettingError(f"nvidia-smi reports {size} as the memory of GPU {index}: {REMEDY}")
        gpus[index] = gpus[uuid] = Gpu(name=index, size=int(size) * 2**20)
    wanted = [name.strip() for name in visible.split(",")] if visible is not None else list(gpus)
    found: dict[Gpu, None] = {}
    for name in wanted:
        begun = name.startswith(UUID)
        gpu = next((gpus[each] for each in gpus if each == name or (begun and each.startswith(name))), None)
        if gpu is None:
            break
        found[gpu] = None
    if not found:
        permitted = "" if visible is None else f" that {VISIBLE}={visible} permits"
        raise SettingError(f"there is no GPU here{permitted}: {REMEDY}")
    return tuple(found)

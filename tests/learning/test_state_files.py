"""The learner's state in shards, and foreign files in their place."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from afterwit.checkpoints.manifest import INDEX, STATE, WEIGHTS, is_state
from afterwit.errors import SettingError, VersionDamaged
from afterwit.learning.distributed.sharded import read_state, write_state
from afterwit.learning.models import load_model
from tests.fakes.models import tiny_qwen3

PART = "learner-0.shard"


@pytest.fixture
def alone() -> Iterator[None]:
    """A group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def state(alone: None) -> dict[str, torch.Tensor]:
    """As sharded weights have it: two dimensions, one, none; in shards, copied, and plain."""
    mesh = init_device_mesh("cpu", (1,))
    torch.manual_seed(0)
    return {
        "exp_avg.w": distribute_tensor(torch.randn(6, 4), mesh, [Shard(0)]),
        "master.v": distribute_tensor(torch.randn(5, dtype=torch.float64), mesh, [Replicate()]),
        "ema.h": distribute_tensor(torch.randn(3, 2).bfloat16(), mesh, [Shard(0)]),
        "step.w": torch.tensor(3.0),
        "reward_mean": torch.tensor(0.1, dtype=torch.float64),
    }


def whole(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {
        name: tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        for name, tensor in state.items()
    }


def test_a_state_in_shards_reads_back_to_the_bit(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    write_state(state, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([PART, INDEX])
    assert all(is_state(path.name) for path in tmp_path.iterdir())
    read, expected = read_state(tmp_path), whole(state)
    assert read.keys() == expected.keys()
    for name, tensor in expected.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name], tensor)


class Command:
    """Unpickled, it makes the file `marker`."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[object, ...]:
        return os.open, (self.marker, os.O_CREAT)


def evil(path: Path, marker: Path) -> None:
    """A pickle as `torch.save` writes it."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(Command(marker)))
        file.writestr("archive/version", "3\n")


def raw(path: Path, marker: Path) -> None:
    path.write_bytes(pickle.dumps(Command(marker)))


def test_no_engine_takes_a_state_for_weights() -> None:
    assert not any(name.endswith(WEIGHTS) for name in (STATE, INDEX, PART))


@pytest.mark.parametrize("write", [evil, raw])
@pytest.mark.parametrize("name", [INDEX, PART, STATE, ".metadata"])
def test_nothing_in_a_state_is_run(
    state: dict[str, torch.Tensor], tmp_path: Path, name: str, write: Callable[[Path, Path], None]
) -> None:
    folder, marker = tmp_path / "version", tmp_path / "it ran"
    folder.mkdir()
    write_state(state, folder)
    write(folder / name, marker)
    if name == ".metadata":
        read_state(folder)
    else:
        with pytest.raises(VersionDamaged, match=r"cannot be read .*afterwit rollback"):
            read_state(folder)
    assert not marker.exists()


@pytest.mark.parametrize("write", [evil, raw])
def test_nothing_in_a_models_folder_is_run(tmp_path: Path, write: Callable[[Path, Path], None]) -> None:
    folder, marker = tiny_qwen3(tmp_path / "model"), tmp_path / "it ran"
    (folder / "model.safetensors").unlink()
    write(folder / "pytorch_model.bin", marker)
    with pytest.raises(SettingError, match=r"transformers cannot load"):
        load_model(folder, dtype=torch.float32, device=torch.device("cpu"))
    assert not marker.exists()


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ({"exp_avg.w": [7, 4]}, "has the shape"),
        ({"exp_avg.w": [10**9, 10**9]}, "has the shape"),
        ({"exp_avg.w": "wide"}, "valid array"),
        ({"gone": [1]}, "gone is in no file"),
    ],
)
def test_an_index_that_asks_for_something_else_is_refused(
    state: dict[str, torch.Tensor], tmp_path: Path, index: dict[str, object], said: str
) -> None:
    write_state(state, tmp_path)
    (tmp_path / INDEX).write_text(json.dumps(index))
    with pytest.raises(VersionDamaged, match=said):
        read_state(tmp_path)


def test_a_state_that_lacks_a_part_is_refused(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    write_state(state, tmp_path)
    (tmp_path / PART).unlink()
    with pytest.raises(VersionDamaged, match="is in no file"):
        read_state(tmp_path)

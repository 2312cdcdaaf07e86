"""The learner's state in shards, and files that somebody else wrote in their place."""

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

from afterwit.checkpoints.files import INDEX, STATE, is_state
from afterwit.errors import SettingError, VersionDamaged
from afterwit.learning.load import load_model
from afterwit.learning.state_files import read_state, write_state
from tests.fakes.models import tiny_qwen3

PART = "__0_0.distcp"


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


@pytest.mark.parametrize("write", [evil, raw])
@pytest.mark.parametrize("name", [INDEX, PART, STATE, ".metadata"])
def test_nothing_in_a_state_is_run(
    state: dict[str, torch.Tensor], tmp_path: Path, name: str, write: Callable[[Path, Path], None]
) -> None:
    folder, marker = tmp_path / "version", tmp_path / "it ran"
    folder.mkdir()
    write_state(state, folder)
    write(folder / name, marker)
    if name == PART:  # the index names it at the length that it has
        index = json.loads((folder / INDEX).read_text())
        length = (folder / PART).stat().st_size
        index = {"x": {"dtype": "float32", "size": [1], "pieces": []}}
        index["x"]["pieces"] = [
            {"offsets": [0], "sizes": [1], "relative_path": PART, "offset": 0, "length": length}
        ]
        (folder / INDEX).write_text(json.dumps(index))
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
    ("field", "value", "said"),
    [
        ("relative_path", "../x.distcp", "is no part of a state"),
        ("relative_path", "/etc/x.distcp", "is no part of a state"),
        ("relative_path", "model.safetensors", "is no part of a state"),
        ("relative_path", "gone.distcp", "No such file"),
        ("offset", -1, "too few"),
        ("length", 10**9, "too few"),
        ("length", 1, "too few"),
        ("sizes", [-6, -4], "is no tensor of a state"),
        ("sizes", [10**9, 10**9], "are not those of a tensor"),
        ("sizes", "wide", "valid array"),
    ],
)
def test_an_index_that_asks_for_something_else_is_refused(
    state: dict[str, torch.Tensor], tmp_path: Path, field: str, value: object, said: str
) -> None:
    write_state(state, tmp_path)
    index = json.loads((tmp_path / INDEX).read_text())
    index["exp_avg.w"]["pieces"][0][field] = value
    (tmp_path / INDEX).write_text(json.dumps(index))
    with pytest.raises(VersionDamaged, match=said):
        read_state(tmp_path)


def test_a_tensor_of_another_kind_is_refused(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    write_state(state, tmp_path)
    index = json.loads((tmp_path / INDEX).read_text())
    for dtype in ("int64", "load", "float32()"):
        index["exp_avg.w"]["dtype"] = dtype
        (tmp_path / INDEX).write_text(json.dumps(index))
        with pytest.raises(VersionDamaged, match="is no tensor of a state"):
            read_state(tmp_path)

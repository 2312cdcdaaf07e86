"""Folders that look like weights."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from afterwit.weights.adapter import CONFIG


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return whole(tmp_path / "base")


@pytest.fixture
def versions(tmp_path: Path) -> list[Path]:
    """Adapters; the first is used as version 1, and so on."""
    folders = [tmp_path / ("adapter" * number) for number in (1, 2, 3)]
    for folder in folders:
        folder.mkdir()
        (folder / CONFIG).write_text("{}")
    return folders


@pytest.fixture
def wholes(tmp_path: Path) -> list[Path]:
    """Whole weights; the first is used as version 1, and so on."""
    return [whole(tmp_path / ("weights" * number)) for number in (1, 2, 3)]


def whole(folder: Path, **tensors: list[int]) -> Path:
    """A folder with the header of a file of weights."""
    folder.mkdir()
    shapes = tensors or {"embed": [4, 2]}
    header = {
        name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]} for name, shape in shapes.items()
    }
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    return folder

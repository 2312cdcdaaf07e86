"""A store belongs to one tokenizer and one set of base weights."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from afterwit.engines import model_files as module
from afterwit.engines.model_files import fingerprint
from afterwit.errors import SettingError


def copied(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def test_a_copy_has_the_same_fingerprint(qwen: Path, tmp_path: Path) -> None:
    assert fingerprint(copied(qwen, tmp_path)) == fingerprint(qwen)


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json", "model.safetensors"])
def test_any_part_that_changes_changes_it(qwen: Path, tmp_path: Path, name: str) -> None:
    copy = copied(qwen, tmp_path)
    content = bytearray((copy / name).read_bytes())
    content[-2] ^= 1
    (copy / name).write_bytes(content)
    assert fingerprint(copy) != fingerprint(qwen)


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json", "model.safetensors"])
def test_a_missing_part_is_a_setting_error(qwen: Path, tmp_path: Path, name: str) -> None:
    copy = copied(qwen, tmp_path)
    (copy / name).unlink()
    with pytest.raises(SettingError):
        fingerprint(copy)


def test_a_large_file_is_read_from_its_start_to_its_end(tmp_path: Path) -> None:
    size = module.SAMPLES * module.SAMPLE_BYTES * 3
    for name in ("tokenizer.json", "config.json"):
        (tmp_path / name).write_text("{}")
    weights = tmp_path / "model.safetensors"
    with weights.open("wb") as file:
        file.truncate(size)
    before = fingerprint(tmp_path)
    seen = set()
    for place in (0, size - 1):
        with weights.open("r+b") as file:
            file.seek(place)
            file.write(b"x")
        seen.add(fingerprint(tmp_path))
    assert len(seen | {before}) == 3

"""A model folder's fingerprint, which binds a store to its tokenizer and base weights. No torch."""

from __future__ import annotations

import hashlib
from pathlib import Path

from afterwit.errors import SettingError

SAMPLES = 256
SAMPLE_BYTES = 256 * 1024
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


def fingerprint(folder: Path) -> str:
    """32 hex digits of tokenizer.json, config.json and the weights. SettingError if one is missing.

    Weight files up to 64 MiB are read whole. Of larger ones, the size and 256 evenly spaced pieces of 256 KiB
    are read: training moves every weight, so other weights differ there too.
    """
    digest = hashlib.sha256()
    for name in ("tokenizer.json", "config.json"):
        path = folder / name
        if not path.is_file():
            raise SettingError(f"{folder} has no {name}: the model must be a Hugging Face folder.")
        _mix(digest, path)
    for path in weight_files(folder):
        _mix(digest, path)
    return digest.hexdigest()[:32]


def weight_files(folder: Path) -> list[Path]:
    """The folder's weight files by name: safetensors, else PyTorch's. SettingError if there are none."""
    for pattern in WEIGHTS:
        if found := sorted(folder.glob(pattern)):
            return found
    raise SettingError(f"{folder} has no weights (*.safetensors): the model must be a Hugging Face folder.")


def _mix(digest: hashlib._Hash, path: Path) -> None:
    size = path.stat().st_size
    digest.update(f"{path.name}\0{size}\0".encode())
    with path.open("rb") as file:
        for start in _places(size):
            file.seek(start)
            digest.update(file.read(SAMPLE_BYTES))


def _places(size: int) -> list[int]:
    """Where the pieces start: back to back if they cover the file, else evenly spaced to its end."""
    if size <= SAMPLES * SAMPLE_BYTES:
        return list(range(0, size, SAMPLE_BYTES))
    return [index * (size - SAMPLE_BYTES) // (SAMPLES - 1) for index in range(SAMPLES)]

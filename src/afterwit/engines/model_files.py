"""The files of a model folder, read without torch: fingerprint, tokenizer, shapes of the weights."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

from afterwit.chat_format.folder import end_ids, tokenizer_of
from afterwit.engines.port import Facts
from afterwit.errors import EngineError, SettingError

SAMPLES = 256
SAMPLE_BYTES = 256 * 1024
LINK = "model.gguf"
"""In the folder of a model that was read from a GGUF file: a link to it."""
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
LONGEST_HEADER = 100 << 20
"""Bytes: the limit of the safetensors format."""


def facts_of(folder: Path, *, kind: str, context_length: int, vocabulary: int, dtype: str) -> Facts:
    """The facts of an engine of this kind that serves the model. SettingError if a file is missing."""
    identity = fingerprint(folder)
    return Facts(
        name=kind,
        model=folder.resolve().name,
        context_length=context_length,
        vocabulary=vocabulary,
        end_ids=end_ids(folder, tokenizer_of(folder).token_to_id),
        dtype=dtype,
        fingerprint=identity,
    )


def fingerprint(folder: Path) -> str:
    """32 hex digits of tokenizer.json, config.json and the weights, which bind a store to them.

    SettingError if one is missing.

    Weight files up to 64 MiB are read whole. Of larger ones, the size and 256 evenly spaced pieces of 256 KiB
    are read: training moves every weight, so other weights differ there as well.
    """
    paths, digest = [folder / "tokenizer.json", folder / "config.json"], hashlib.sha256()
    for path in paths:
        if not path.is_file():
            raise SettingError(f"{folder} has no {path.name}: the model must be a Hugging Face folder.")
    for path in (*paths, *weight_files(folder)):
        digest.update(f"{path.name}\0".encode())
        _sample(path, digest.update)
    return digest.hexdigest()[:32]


def file_fingerprint(path: Path) -> str:
    """32 hex digits of one large file, wherever it lies and whatever its name. Raises OSError."""
    digest = hashlib.sha256()
    _sample(path, digest.update)
    return digest.hexdigest()[:32]


def _sample(path: Path, update: Callable[[bytes], object]) -> None:
    """Give `update` a file's size, and its bytes: all, or those of evenly spaced pieces."""
    size = path.stat().st_size
    starts: Iterable[int] = range(0, size, SAMPLE_BYTES)
    if size > SAMPLES * SAMPLE_BYTES:
        starts = (index * (size - SAMPLE_BYTES) // (SAMPLES - 1) for index in range(SAMPLES))
    update(f"{size}\0".encode())
    with path.open("rb") as file:
        for start in starts:
            file.seek(start)
            update(file.read(SAMPLE_BYTES))


def weight_files(folder: Path) -> list[Path]:
    """The folder's weight files by name: safetensors, else PyTorch's. SettingError if there are none."""
    for pattern in WEIGHTS:
        if found := sorted(folder.glob(pattern)):
            return found
    raise SettingError(f"{folder} has no weights (*.safetensors): the model must be a Hugging Face folder.")


def weights_of(folder: Path) -> list[Path]:
    """The safetensors files of a model's weights, by name."""
    return sorted(folder.glob("*.safetensors"))


def shapes_of(folder: Path) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor of a model's weights, by name. EngineError if a file cannot be read.

    The header of a safetensors file is its length in eight bytes, then JSON.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for path in weights_of(folder):
        try:
            with path.open("rb") as file:
                (length,) = struct.unpack("<Q", file.read(8))
                if length > LONGEST_HEADER:
                    raise ValueError(f"a header of {length} bytes")
                found = json.loads(file.read(length))
            shapes |= {name: tuple(each["shape"]) for name, each in found.items() if name != "__metadata__"}
        except (OSError, ValueError, struct.error, LookupError, TypeError, AttributeError) as error:
            raise EngineError(f"{path} is not a file of weights: {error}") from error
    return shapes

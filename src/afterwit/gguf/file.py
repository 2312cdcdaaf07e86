"""The head of a GGUF file: its settings, and the place of each tensor. The weights stay on the disk.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from afterwit.errors import AfterwitError, SettingError

SUFFIX, MAGIC = ".gguf", b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32
"""Bytes: the start of the tensors is a multiple of it, unless `general.alignment` names another."""
STRING, ARRAY = 8, 9
SCALARS = ("<B", "<b", "<H", "<h", "<I", "<i", "<f", "<?", "", "", "<Q", "<q", "<d")
"""The format of each type of value by its number; strings and arrays have their own."""


AGAIN = "convert it again with a current llama.cpp"
"""The remedy for a file that contradicts itself."""
INSTEAD = "name the model's Hugging Face folder or hub id"
"""The remedy for a file that is not read."""
CONVERT = "write a folder, and convert it with llama.cpp's convert_hf_to_gguf.py"
"""The remedy for a model that is not written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor in the file. `shape` is in torch's order, outputs first; GGUF keeps the reverse."""

    shape: tuple[int, ...]
    kind: int
    """The number of its quantisation: `gguf.GGMLQuantizationType`."""
    start: int
    """Bytes from the start of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    path: Path
    fields: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    def need(self, key: str) -> Any:
        """The value of a setting. SettingError if the file has none."""
        if key not in self.fields:
            raise SettingError(f"{self.path} has no {key}: {AGAIN}")
        return self.fields[key]


def is_gguf(path: Path) -> bool:
    """Whether this file is read as GGUF. Ollama's have no suffix."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return path.suffix.lower() == SUFFIX or file.read(len(MAGIC)) == MAGIC


def library() -> ModuleType:
    """The library `gguf`, which knows the quantisations. ModuleNotFoundError without the extra gguf."""
    import gguf

    return gguf


def read_head(path: Path) -> Head:
    """The head of a GGUF file. SettingError if it is none, or not whole."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(data).head(path)
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, ArithmeticError, IndexError, struct.error, RecursionError) as error:
        raise SettingError(f"{path} is not a whole GGUF file ({error}): download it again") from error


@contextmanager
def contradictions(path: Path) -> Iterator[None]:
    """Turns any error from settings of a type or size that no model has into a SettingError."""
    try:
        yield
    except (AfterwitError, ImportError, OSError):
        raise
    except Exception as error:  # transformers checks settings by errors of its own
        reason = " ".join(str(error).split())
        raise SettingError(f"{path} contradicts itself ({reason}): {AGAIN}") from error


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data, self._at = data, 0

    def head(self, path: Path) -> Head:
        if self._data[:4] != MAGIC:
            raise ValueError("it does not begin with GGUF")
        self._at = 4
        version = self._number("<I")
        if version not in VERSIONS:
            raise ValueError(f"its version is {version}, and {VERSIONS} are read")
        tensors, fields = self._number("<Q"), self._number("<Q")
        found = {self._string(): self._value(self._number("<I")) for _ in range(self._counted(fields, 13))}
        places = [self._tensor() for _ in range(self._counted(tensors, 32))]
        step = int(found.get("general.alignment", ALIGNMENT))
        start = -(-self._at // step) * step
        return Head(
            path=path,
            fields=found,
            tensors={
                name: Tensor(shape=shape, kind=kind, start=start + offset)
                for name, shape, kind, offset in places
            },
        )

    def _number(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return value

    def _counted(self, count: int, each: int) -> int:
        """A count of things of at least `each` bytes. ValueError if the file is too short for them."""
        if count * each > len(self._data) - self._at:
            raise ValueError(f"it ends before {count} values")
        return count

    def _string(self) -> str:
        length = self._counted(self._number("<Q"), 1)
        self._at += length
        return self._data[self._at - length : self._at].decode()

    def _value(self, type_: int) -> Any:
        if type_ == STRING:
            return self._string()
        if type_ != ARRAY:
            return self._number(SCALARS[type_])
        inner, count = self._number("<I"), self._number("<Q")
        if inner in (STRING, ARRAY):
            return [self._value(inner) for _ in range(self._counted(count, 8))]
        form = f"<{self._counted(count, struct.calcsize(SCALARS[inner]))}{SCALARS[inner][1]}"
        values = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return list(values)

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name, count = self._string(), self._number("<I")
        shape = [self._number("<Q") for _ in range(self._counted(count, 8))]
        return name, tuple(reversed(shape)), self._number("<I"), self._number("<Q")


def bytes_of(tensor: Tensor) -> int:
    """The bytes that it takes in the file. ValueError if its kind is unknown to the library."""
    block, size = library().GGML_QUANT_SIZES[library().GGMLQuantizationType(tensor.kind)]
    return int(math.prod(tensor.shape) // block * size)
